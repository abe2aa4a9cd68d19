# SPDX-License-Identifier: Apache-2.0
"""What the verbs share about trust: the two flags, private keys with their passphrases, and how a signature is shown.

It decides nothing: `dpfedge.signing` says what a signature is worth.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.errors import UsageError

if TYPE_CHECKING:
    from dpfedge.signing import Finding, PrivateKey

__all__ = ["PASSPHRASE", "add_trust_arguments", "ask_passphrase", "load_key", "shown", "trust_options"]

PASSPHRASE = "DPFEDGE_KEY_PASSPHRASE"
_MOST = 1023  # of the library that encrypts keys


def add_trust_arguments(parser: argparse.ArgumentParser) -> None:
    """`--allow-unsigned` and `--trust DIR`, of every verb that runs a package."""
    group = parser.add_argument_group("trust")
    group.add_argument(
        "--allow-unsigned", action="store_true", help="take a package that nobody trusted has signed, with a warning"
    )
    group.add_argument(
        "--trust",
        type=Path,
        action="append",
        metavar="DIR",
        help="folder of trusted .pub keys; may be given more than once "
        "(default: $DPFEDGE_TRUST, else /etc/dpfedge/trust and ~/.config/dpfedge/trust)",
    )


def trust_options(args: argparse.Namespace) -> dict[str, Any]:
    """The flags as the options of `prepare` and `Runtime.open`."""
    return {"allow_unsigned": args.allow_unsigned, "trust": args.trust}


def load_key(path: Path) -> PrivateKey:
    """The private key in a file; a passphrase comes from the environment or is asked for."""
    from dpfedge.signing import PrivateKey

    return PrivateKey.load(path, lambda: ask_passphrase(f"passphrase of {path}: "))


def ask_passphrase(prompt: str, *, twice: bool = False) -> bytes:
    """From the environment, else from the terminal, there `twice` for a new one.

    UsageError without either, when it is empty or too long, or was not typed the same again.
    """
    given = os.environ.get(PASSPHRASE)
    word = os.fsencode(_typed(prompt, twice) if given is None else given)
    if not word:
        raise UsageError("the passphrase is empty", where="passphrase")
    if len(word) > _MOST:
        raise UsageError("the passphrase is too long", where="passphrase", allowed=f"at most {_MOST} bytes")
    return word


def _typed(prompt: str, twice: bool) -> str:
    if not sys.stdin.isatty():
        raise UsageError("the key needs a passphrase", where="passphrase", remedy=f"set {PASSPHRASE}")
    from getpass import getpass

    try:
        word = getpass(prompt)
        if twice and getpass(f"again, {prompt}") != word:
            raise UsageError("the two passphrases differ", where="passphrase", remedy="try again")
    except EOFError as error:
        raise UsageError("no passphrase was typed", where="passphrase") from error
    return word


def shown(findings: Sequence[Finding]) -> Iterator[str]:
    """A line for each signature; one that says so when there is none."""
    if not findings:
        yield "no signature"
    for finding in findings:
        yield f"signature of {finding}: {finding.state}"
