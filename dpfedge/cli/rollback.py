# SPDX-License-Identifier: Apache-2.0
"""`dpfedge rollback`: the name of an installed package in, its previous version active again."""

from __future__ import annotations

import argparse
import json

from dpfedge.cli.storing import add_store_arguments, told_servers
from dpfedge.store import Store

NAME = "rollback"
HELP = """Swap the two slots of a package name: what was active before is active again.

examples:
  dpfedge rollback voice
  dpfedge rollback voice --activate     a running `dpfedge serve voice` switches back between two turns"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("name", help="the package's name")
    parser.add_argument("--activate", action="store_true", help="let a running server of this name switch to it")
    add_store_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Swap and say what is active now."""
    store = Store(args.store, wait_s=args.wait)
    told, activate = told_servers(store, args.activate)
    one = store.rollback(args.name, activate)
    if args.json:
        print(json.dumps({"active": one.as_json(), "servers": told}, indent=2))
    else:
        print("\n".join([f"{one.name} {one.version} is active", *(f"server pid {pid} serves it" for pid in told)]))
    return 0
