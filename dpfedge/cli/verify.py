# SPDX-License-Identifier: Apache-2.0
"""`dpfedge verify`: check every byte of packages and who signed them; `dpfedge.package` and `dpfedge.signing` do it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from dpfedge.cli.golden_table import golden_failure, golden_lines, golden_rows
from dpfedge.cli.trusting import add_trust_arguments, shown, trust_options
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
  dpfedge verify voice.dpfbin --answers arm.json --speech hello.wav "hello there"
                                             also keep what this machine computed and heard
  dpfedge verify --parity x86.json arm.json  how far two machines are apart: logits, tokens, word error rate

Exit code 1 when answers are off. Exit code 4 when a package is refused: the message says where it is damaged, or why
its signatures do not suffice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="a .dpfbin file, or an installed package's name")
    add_trust_arguments(parser)
    parser.add_argument("--run", action="store_true", help="run every graph on its golden inputs on this machine")
    parser.add_argument("--board", metavar="BOARD", help="with --run: a board id, or auto (default)")
    parser.add_argument(
        "--answers", type=Path, metavar="FILE", help="as --run of one package, and write what was computed"
    )
    parser.add_argument(
        "--speech", nargs=2, action="append", default=[], metavar=("WAV", "WORDS"),
        help="with --answers: a recording to hear, and the words in it; may be repeated",
    )  # fmt: skip
    parser.add_argument("--parity", nargs=2, type=Path, metavar=("A", "B"), help="compare two files of --answers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Verify each package, also those behind a refused one; or compare two machines."""
    _check_usage(args)
    if args.parity:
        from dpfedge.cli.parity import show_parity

        first, second = args.parity
        show_parity(first, second, args.json)
        return 0
    code, rows, trust = 0, [], Trust.load(args.trust)
    vouch = partial(_require, trust=trust, allow_unsigned=args.allow_unsigned)
    for path in args.packages:
        row: dict[str, Any] = {"path": path, "good": False}
        try:
            with open_package(locate(path).path, check="full") as package:
                row |= _row(package, trust)
                vouch(package)
                if args.run or args.answers:
                    row["golden"] = _golden(args, package, vouch)
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


def _check_usage(args: argparse.Namespace) -> None:
    if args.parity and (args.packages or args.run or args.answers):
        raise UsageError("compares two files and runs nothing", where="--parity", remedy="name no package")
    if not args.packages and not args.parity:
        raise UsageError("no package is named", where="dpfedge verify", remedy="name one, or two files with --parity")
    if args.board is not None and not (args.run or args.answers):
        raise UsageError("only golden inputs need a board", where="--board", remedy="add --run")
    if args.answers and len(args.packages) != 1:
        raise UsageError("a file holds the answers to one package", where="--answers", found=len(args.packages))
    if args.speech and not args.answers:
        raise UsageError("nothing keeps what is heard", where="--speech", remedy="add --answers FILE")


def _golden(args: argparse.Namespace, package: Package, vouch: Callable[[Package], object]) -> list[dict[str, Any]]:
    board = args.board or "auto"
    if not args.answers:
        return golden_rows(package, board, vouch)
    from dpfedge.cli.parity import answer, hear

    recordings = [(Path(file), said) for file, said in args.speech]
    heard = hear(package.path, board, recordings, **trust_options(args)) if recordings else []
    return [result.to_map() for result in answer(package, board, vouch, args.answers, heard)]


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
