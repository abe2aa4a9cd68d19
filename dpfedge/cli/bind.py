# SPDX-License-Identifier: Apache-2.0
"""`dpfedge bind`: a package and a board in, the target of each model that runs here, or every refusal, out."""

from __future__ import annotations

import argparse
import json
import os
import sys

from dpfedge.binding import Bound, bind_here
from dpfedge.binding.explain import describe_bound, describe_error, explain_bound
from dpfedge.errors import DpfError
from dpfedge.package import open_package

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "bind"
HELP = """Say which target of a package runs each of its models here, and why; exit code 3 when a model has none.

examples:
  dpfedge bind voice.dpfbin --board host --explain
  dpfedge bind voice.dpfbin --json
  dpfedge bind voice.dpfbin --sysroot car.tar --explain     a machine that is not here, see `dpfedge probe --record`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("package", metavar="PACKAGE", help="a .dpfbin file, or the name of an installed package")
    parser.add_argument("--board", default="auto", metavar="BOARD", help="a board id, or auto (default)")
    parser.add_argument("--explain", action="store_true", help="show whitelists, the compiler's decisions and refusals")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )
    parser.add_argument(
        "--allow-fallback",
        action="append",
        default=[],
        metavar="BACKEND",
        help="accept this slower backend for models whose own is missing; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Bind and print the decision; refused is exit code 3."""
    try:
        # A decision touches no weight, so the weights' digests are not what it depends on.
        with open_package(_path(args.package), check="fast") as package:
            bound = bind_here(package, args.board, sysroot=args.sysroot, allow_fallback=args.allow_fallback)
            lines = _lines(bound, args)
    except DpfError as error:
        if not args.json:
            raise
        print(json.dumps(describe_error(error), indent=2))
        print(f"dpfedge: {error.what.partition(chr(10))[0]}", file=sys.stderr)
        return error.exit_code
    print("\n".join(lines))
    return 0


def _path(ref: str) -> str | os.PathLike[str]:
    if os.path.exists(ref):
        return ref
    from dpfedge.store import locate  # imported only for a name: a file's answer must not wait for the store

    return locate(ref).path


def _lines(bound: Bound, args: argparse.Namespace) -> list[str]:
    return (
        [json.dumps(describe_bound(bound), indent=2)] if args.json else list(explain_bound(bound, explain=args.explain))
    )
