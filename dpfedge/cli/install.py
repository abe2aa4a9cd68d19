# SPDX-License-Identifier: Apache-2.0
"""`dpfedge install`: a package file in, the active package of its name in the store out, once it proved good here."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from dpfedge.cli.storing import add_store_arguments, told_servers
from dpfedge.cli.trusting import add_trust_arguments
from dpfedge.store import Installation, Store
from dpfedge.store.approval import Approval

NAME = "install"
HELP = """Install a package: copy it into the store, verify bytes, signature and golden answers, make it active.

examples:
  dpfedge install voice.dpfbin
  dpfedge install voice.dpfbin --activate     a running `dpfedge serve voice` switches to it between two turns
  dpfedge install voice.dpfbin --no-golden --json

Whatever fails, and whenever the power does, the old package stays active. Exit codes: 3 it is not for this machine,
4 it is damaged or not trusted, 1 its answers are wrong, the store cannot take it, or a running server cannot run it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("package", type=Path, help="the package file")
    parser.add_argument("--activate", action="store_true", help="let a running server of this name switch to it")
    parser.add_argument("--no-golden", action="store_true", help="do not run the package's golden inputs")
    parser.add_argument("--board", default="auto", help="the board it must fit (default: the one this machine is)")
    add_store_arguments(parser)
    add_trust_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Install and say what is active now."""
    store = Store(args.store, wait_s=args.wait)
    judge = Approval(args.board, args.allow_unsigned, args.trust, golden=not args.no_golden)
    told, activate = told_servers(store, args.activate)
    done = store.install(args.package, judge, activate)
    if done.installed.verified.signer is None:
        text = "nobody trusted has signed it; it was allowed, and each start needs --allow-unsigned"
        print(f"dpfedge: warning: {args.package}: {text}", file=sys.stderr, flush=True)
    if args.json:
        active, previous = done.installed, done.previous
        fields = {"active": active.as_json(), "previous": previous and previous.as_json(), "copied": done.copied}
        print(json.dumps({**fields, "switched": done.switched, "servers": told}, indent=2))
    else:
        print("\n".join(_lines(done, told, args.activate)))
    return 0


def _lines(done: Installation, told: list[int], activate: bool) -> Iterator[str]:
    one = done.installed
    signed = f"signed by {one.verified.signer.name}" if one.verified.signer else "NOT SIGNED"
    size = f"{one.verified.stamp.size} bytes copied" if done.copied else "the store had the file"
    golden = {"passed": "golden run passed", "none": "no golden records", "skipped": "golden run skipped"}
    was = f" (previous: {done.previous.version})" if done.previous else ""
    state = "is active" if done.switched else "was active already"
    yield f"{one.name} {one.version} {state}{was}: {size}, {signed}, {golden[one.verified.golden]}"
    if activate:
        yield from (f"server pid {pid} serves it" for pid in told)
        if not told:
            yield "no running server serves this name from this store"
