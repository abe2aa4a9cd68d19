# SPDX-License-Identifier: Apache-2.0
"""`dpfedge keygen`: a new key to sign packages with; the work is done by `dpfedge.signing`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from pathlib import Path

from dpfedge.cli.trusting import PASSPHRASE, ask_passphrase
from dpfedge.errors import UsageError
from dpfedge.package.fields import is_name
from dpfedge.signing import PrivateKey
from dpfedge.signing.keys import write_new
from dpfedge.signing.trust import trust_folders, user_folder

NAME = "keygen"
HELP = f"""Make an Ed25519 key pair to sign packages with.

examples:
  dpfedge keygen --name supplier -o supplier.key     supplier.key (secret) and supplier.pub
  dpfedge keygen --name lab --trust                  and trust it on this machine
  dpfedge keygen --name oem --passphrase             asked for, or from {PASSPHRASE}

Give the .pub file to those who shall trust packages you sign: they put it into their trust directory."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--name", help="how a trust directory calls the key (default: the file's name)")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the private key (default: NAME.key)")
    parser.add_argument(
        "--trust",
        nargs="?",
        const=True,
        type=Path,
        metavar="DIR",
        help="put the public key into this trust directory (default: the first of $DPFEDGE_TRUST, else the user's)",
    )
    parser.add_argument("--passphrase", action="store_true", help="encrypt the private key")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Make the key; nothing is overwritten."""
    secret = args.out or Path(f"{args.name or 'dpfedge'}.key")
    name = args.name or secret.stem
    if not is_name(name) or "/" in name:
        raise UsageError("bad name", where="--name", found=repr(name), allowed="letters, digits, . _ + @ -")
    public = secret.with_suffix(".pub")
    if public == secret:
        raise UsageError("this is the public key's name", where="--out", found=str(secret), allowed="NAME.key")
    folder = _folder(args.trust)
    trusted = folder / f"{name}.pub" if folder else None
    for path in (secret, public, trusted):
        if path is not None and path.exists():
            raise UsageError("the file exists", where=str(path), remedy="take another name; a key is never overwritten")
    word = ask_passphrase(f"new passphrase of {secret}: ", twice=True) if args.passphrase else None
    key = PrivateKey.generate()
    key.save(secret, word)
    with contextlib.ExitStack() as undo:  # half a pair would be in the way of the next try
        undo.callback(secret.unlink)
        write_new(public, key.public.pem(), 0o644)
        undo.callback(public.unlink)
        if trusted is not None and trusted.resolve() != public.resolve():
            _make(trusted.parent)
            write_new(trusted, key.public.pem(), 0o644)
        undo.pop_all()
    _report(args.json, key.public.key_id, name, secret, public, trusted)
    return 0


def _folder(trust: Path | bool | None) -> Path | None:
    if trust is not True:
        return trust or None
    folder = next(iter(trust_folders()), None) if os.environ.get("DPFEDGE_TRUST") else user_folder()
    if folder is None:
        raise UsageError("this user has no trust directory", where="--trust", remedy="name one: --trust DIR")
    return folder


def _make(folder: Path) -> None:
    try:
        folder.mkdir(0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder: {error.strerror}", where=str(folder)) from error


def _report(as_json: bool, key_id: str, name: str, secret: Path, public: Path, trusted: Path | None) -> None:
    if as_json:
        paths = {"private": str(secret), "public": str(public), "trusted": trusted and str(trusted)}
        print(json.dumps({"key_id": key_id, "name": name, **paths}))
        return
    print(f"{secret}: private key, keep it secret")
    print(f"{public}: public key {name} ({key_id})")
    if trusted is not None:
        print(f"{trusted}: trusted on this machine")
