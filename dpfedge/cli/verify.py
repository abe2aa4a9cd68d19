# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify`: check every byte of packages and who signed them; `dpfedge.package` and `dpfedge.signing` do it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from functools import partial
from typing import Any

from dpfedge.cli.golden_table import golden_failure, golden_lines, golden_rows
from dpfedge.cli.trusting import add_trust_arguments, shown
from dpfedge.errors import BackendError, BindError, BoardError, PackageError, UsageError
from dpfedge.package import Package, open_package
from dpfedge.signing import Finding, Trust, examine, require_signature
from dpfedge.store import locate

NAME = "verify"
HELP = """Check every byte of a package (header, manifest, digests of all sections, padding) and each signature.

examples:
  dpfedge verify voice.dpfbin
  dpfedge verify voice.dpfbin --trust keys/
  dpfedge verify voice.dpfbin --allow-unsigned     bytes only; a revoked version is refused all the same
  dpfedge verify voice.dpfbin --json
  dpfedge verify voice.dpfbin --run          also run the golden inputs here and compare with the recorded outputs

Exit code 4 when a package is refused: the message says where it is damaged, or why its signatures do not suffice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("packages", nargs="+", metavar="PACKAGE", help="a .dpfbin file, or an installed package's name")
    add_trust_arguments(parser)
    parser.add_argument("--run", action="store_true", help="run every graph on its golden inputs on this machine")
    parser.add_argument("--board", metavar="BOARD", help="with --run: a board id, or auto (default)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Verify each package, also those behind a refused one."""
    if args.board is not None and not args.run:
        raise UsageError("only golden inputs need a board", where="--board", remedy="add --run")
    code, rows, trust = 0, [], Trust.load(args.trust)
    vouch = partial(_require, trust=trust, allow_unsigned=args.allow_unsigned)
    for path in args.packages:
        row: dict[str, Any] = {"path": path, "good": False}
        try:
            with open_package(locate(path).path, check="full") as package:
                row |= _row(package, trust)
                vouch(package)
                if args.run:
                    row["golden"] = golden_rows(package, args.board or "auto", vouch)
                    _require_golden(path, row["golden"])
            row["good"] = True
        except (PackageError, BackendError, BindError, BoardError) as error:
            row["error"] = str(error)
            code = error.exit_code
        rows.append(row)
        if not args.json:
            _show(row)
        if "error" in row:
            print(f"dpfedge: {row['error']}", file=sys.stderr)
    if args.json:
        print(json.dumps({"packages": rows}, indent=2))
    return code


def _require(package: Package, trust: Trust, allow_unsigned: bool) -> None:
    if allow_unsigned:
        trust.refuse_revoked(str(package.path), package.manifest_sha256)
    else:
        require_signature(package, trust)


def _require_golden(path: str, rows: list[dict[str, Any]]) -> None:
    if failure := golden_failure(path, rows):
        raise BackendError(failure, remedy="fetch the package again; if it stays so, this machine computes wrongly")


def _row(package: Package, trust: Trust) -> dict[str, Any]:
    manifest = package.manifest
    return {
        "name": manifest.name, "version": manifest.version, "format": "{}.{}".format(*manifest.format),
        "sections": len(manifest.sections), "bytes": package.nbytes, "manifest_sha256": package.manifest_sha256.hex(),
        "signatures": [dataclasses.asdict(finding) for finding in examine(package, trust)],
    }  # fmt: skip


def _show(row: dict[str, Any]) -> None:
    """Nothing of a damaged package; of an intact one all signatures, also when they do not suffice."""
    if "signatures" not in row:
        return
    verdict = "good" if row["good"] else "intact"
    print(
        f"{row['path']}: {verdict}: {row['name']} {row['version']}, format {row['format']}, "
        f"{row['sections']} sections, {row['bytes']} bytes, manifest {row['manifest_sha256']}"
    )
    for line in shown([Finding(**finding) for finding in row["signatures"]]):
        print(f"  {line}")
    for line in golden_lines(row["golden"]) if "golden" in row else ():
        print(f"  {line}")
