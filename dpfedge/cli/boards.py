# SPDX-License-Identifier: Apache-2.0
"""`dpfedge boards`: a root directory in, the known boards and which of them the machine is, out."""

from __future__ import annotations

import argparse
import json

from dpfedge.hardware.board import AUTO, boards, find_board, match_board
from dpfedge.hardware.probe import probe
from dpfedge.hardware.sysroot import machine_root

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "boards"
HELP = "List the known boards, and which of them this machine is.\n\nexample: dpfedge boards --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--json", action="store_true", help="print one JSON list")
    parser.add_argument(
        "--sysroot", default="/", metavar="DIR", help="a recorded machine (folder or .tar) instead of this one"
    )


def run(args: argparse.Namespace) -> int:
    """Print every board with whether the machine is it."""
    with machine_root(args.sysroot) as root:
        machine = probe(root)
    chosen = find_board(AUTO, machine).id
    rows = []
    for board in boards():
        match = match_board(board, machine)
        row = {
            "id": board.id,
            "title": board.title,
            "vendor": board.vendor,
            "matches": match.ok,
            "auto": board.id == chosen,
        }
        rows.append(row | {"wanted": match.wanted, "found": match.found, "path": board.path})
    print(json.dumps(rows, indent=2) if args.json else _table(rows))
    return 0


def _table(rows: list[dict[str, object]]) -> str:
    ids, titles = (max(len(str(row[key])) for row in rows) for key in ("id", "title"))
    here = {True: "yes", False: "no"}
    lines = [f"{'BOARD'.ljust(ids)}  {'TITLE'.ljust(titles)}  THIS MACHINE"]
    for row in rows:
        mark = "yes, --board auto takes it" if row["auto"] else here[bool(row["matches"])]
        lines.append(f"{str(row['id']).ljust(ids)}  {str(row['title']).ljust(titles)}  {mark}")
    return "\n".join(lines)
