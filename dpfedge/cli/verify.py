# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify`: check every byte of packages; the work is done by `dpfedge.package`."""

from __future__ import annotations

import argparse
import sys

from dpfedge.errors import PackageError
from dpfedge.package import Package, open_package

NAME = "verify"
HELP = """Check every byte of a package: header, manifest, digests of all sections, padding.

example: dpfedge verify voice.dpfbin

Exit code 4 when a package is refused; the message says where it is damaged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="a .dpfbin file")


def run(args: argparse.Namespace) -> int:
    """Verify each package, also those behind a refused one."""
    code = 0
    for path in args.packages:
        try:
            with open_package(path, check="full") as package:
                print(_line(package))
        except PackageError as error:
            print(f"dpfedge: {error}", file=sys.stderr)
            code = error.exit_code
    return code


def _line(package: Package) -> str:
    manifest = package.manifest
    version = "{}.{}".format(*manifest.format)
    return (
        f"{package.path}: good: {manifest.name} {manifest.version}, format {version}, "
        f"{len(manifest.sections)} sections, {package.nbytes} bytes, manifest {package.manifest_sha256.hex()}"
    )
