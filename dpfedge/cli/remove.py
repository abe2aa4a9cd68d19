# SPDX-License-Identifier: Apache-2.0
"""`dpfedge remove`: the name of an installed package in, its slots and files gone."""

from __future__ import annotations

import argparse
import json

from dpfedge.cli.storing import add_store_arguments, collected_json, collected_lines
from dpfedge.store import Store

NAME = "remove"
HELP = """Remove an installed package, both versions of it; files that a running process uses stay until `dpfedge gc`.

example: dpfedge remove voice"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("name", help="the package's name")
    add_store_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Remove and say what became free."""
    collected = Store(args.store, wait_s=args.wait).remove(args.name)
    if args.json:
        print(json.dumps({"removed": args.name, **collected_json(collected)}, indent=2))
    else:
        print("\n".join([f"removed {args.name}", *collected_lines(collected)]))
    return 0
