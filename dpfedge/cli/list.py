# SPDX-License-Identifier: Apache-2.0
"""`dpfedge list`: the installed packages, both slots of each name, and what is wrong with any."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from dpfedge.cli.storing import add_store_arguments
from dpfedge.errors import StoreError
from dpfedge.store import Entry, Installed, Store

NAME = "list"
HELP = """List the installed packages: the active one of each name, and the one `dpfedge rollback` goes back to.

examples:
  dpfedge list
  dpfedge list --json

Exit code 1 when a name cannot be read."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_store_arguments(parser, changes=False)


def run(args: argparse.Namespace) -> int:
    """Print every name."""
    store = Store(args.store)
    entries = store.list()
    if args.json:
        print(json.dumps({"store": str(store.root), "packages": [_row(entry) for entry in entries]}, indent=2))
    else:
        print("\n".join(line for entry in entries for line in _lines(entry)) or f"nothing is installed in {store.root}")
    problems = [entry.problem for entry in entries if entry.problem]
    for problem in problems:
        print(f"dpfedge: {problem}", file=sys.stderr)
    return StoreError.exit_code if problems else 0


def _row(entry: Entry) -> dict[str, Any]:
    active, previous = (one and {**one.as_json(), "state": _state(one)} for one in (entry.active, entry.previous))
    return {"name": entry.name, "active": active, "previous": previous, "problem": entry.problem}


def _lines(entry: Entry) -> list[str]:
    if entry.active is None:
        return [f"{entry.name}: damaged"]
    one = entry.active
    signed = f"signed by {one.verified.signer.name}" if one.verified.signer else "not signed"
    size = f"{one.verified.stamp.size} bytes"
    lines = [f"{one.name} {one.version}, {size}, {signed}, golden {one.verified.golden}, {_state(one)}"]
    if entry.previous is not None:
        lines.append(f"  previous {entry.previous.version}, {_state(entry.previous)}")
    return lines


def _state(installed: Installed) -> str:
    """What opening it will find necessary."""
    checks = {
        "unchanged": "",
        "new boot": "; pages are sampled at each use",
        "changed": "; checked in full at each use",
    }
    try:
        state = installed.state()
    except StoreError:
        return "missing"
    return f"{state}{checks[state]}"
