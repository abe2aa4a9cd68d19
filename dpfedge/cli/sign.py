# SPDX-License-Identifier: Apache-2.0
"""`dpfedge sign`: add signatures to a package; the work is done by `dpfedge.signing`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from dpfedge.cli.trusting import load_key
from dpfedge.package import open_package
from dpfedge.signing import sign_package
from dpfedge.signing.check import signatures_of

NAME = "sign"
HELP = """Sign a package: vouch for its manifest, and through it for every byte that is used.

examples:
  dpfedge sign voice.dpfbin --key supplier.key
  dpfedge sign voice.dpfbin --key oem.key --out release/voice.dpfbin

Every byte is verified first. Signatures that are there stay, one of the same key is replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, metavar="PACKAGE", help="a .dpfbin file")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="private key; may be given more than once",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the signed package (default: in place)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Sign, and say who has signed now."""
    keys = [load_key(path) for path in args.key]
    out = args.out or args.package
    sign_package(args.package, keys, args.out)
    with open_package(out, check="fast") as package:
        ids = [signature.key_id.hex() for signature in signatures_of(package)]
    if args.json:
        print(json.dumps({"package": str(out), "signatures": ids}))
    else:
        print(f"{out}: signed by {', '.join(ids)}")
    return 0
