# SPDX-License-Identifier: Apache-2.0
"""`dpfedge gc`: deletes what no slot of the store refers to, except what a running process uses."""

from __future__ import annotations

import argparse
import json

from dpfedge.cli.storing import add_store_arguments, collected_json, collected_lines
from dpfedge.store import Store

NAME = "gc"
HELP = """Delete what no slot of the store refers to: older versions, leftovers of interrupted installs.

example: dpfedge gc --json

What a running process has mapped stays; an install in progress is waited for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    add_store_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Delete and say what became free."""
    collected = Store(args.store, wait_s=args.wait).gc()
    print(json.dumps(collected_json(collected), indent=2) if args.json else "\n".join(collected_lines(collected)))
    return 0
