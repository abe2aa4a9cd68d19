# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify`: check every byte of packages; the work is done by `dpfedge.package`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from dpfedge.errors import PackageError
from dpfedge.package import Package, open_package

NAME = "verify"
HELP = """Check every byte of a package: header, manifest, digests of all sections, padding.

examples:
  dpfedge verify voice.dpfbin
  dpfedge verify voice.dpfbin --json

Exit code 4 when a package is refused; the message says where it is damaged."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="a .dpfbin file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Verify each package, also those behind a refused one."""
    code, rows = 0, []
    for path in args.packages:
        try:
            with open_package(path, check="full") as package:
                rows.append(_row(package))
                if not args.json:
                    print(_line(package))
        except PackageError as error:
            rows.append({"path": path, "good": False, "error": str(error)})
            print(f"dpfedge: {error}", file=sys.stderr)
            code = error.exit_code
    if args.json:
        print(json.dumps({"packages": rows}, indent=2))
    return code


def _row(package: Package) -> dict[str, Any]:
    manifest = package.manifest
    return {
        "path": str(package.path), "good": True, "name": manifest.name, "version": manifest.version,
        "format": "{}.{}".format(*manifest.format), "sections": len(manifest.sections), "bytes": package.nbytes,
        "manifest_sha256": package.manifest_sha256.hex(),
    }  # fmt: skip


def _line(package: Package) -> str:
    manifest = package.manifest
    version = "{}.{}".format(*manifest.format)
    return (
        f"{package.path}: good: {manifest.name} {manifest.version}, format {version}, "
        f"{len(manifest.sections)} sections, {package.nbytes} bytes, manifest {package.manifest_sha256.hex()}"
    )
