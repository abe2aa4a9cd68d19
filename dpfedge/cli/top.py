# SPDX-License-Identifier: Apache-2.0
"""`dpfedge top`: the running servers of this user in, what they do right now out, again and again."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dpfedge.cli.status import add_which_arguments, chosen_servers
from dpfedge.errors import UsageError
from dpfedge.routing.kernel.users import DeviceUsers
from dpfedge.serve.watching import Look, activity, look, temperatures

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "top"
HELP = """Watch the running servers of this user: stages, links, requests, the last turn's times, temperatures.

examples:
  dpfedge top
  dpfedge top --interval 5
  dpfedge top --once --json

CPU is in percent of one core. It ends with Ctrl-C; where stdout is no terminal it prints one table and ends.
The server answers one small GET for each look; processor time and memory are read beside it.
Who uses the accelerators the kernel tells, with CAP_BPF and CAP_NET_ADMIN; else /proc does, of one's own processes."""

_INTERVAL_MIN_S, _INTERVAL_MAX_S = 0.2, 3600.0
_ONCE_S = 0.5  # rates need two looks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_which_arguments(parser)
    parser.add_argument("--interval", type=float, default=2.0, metavar="S", help="seconds between looks (default: 2)")
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each look")


def run(args: argparse.Namespace) -> int:
    """Watch until Ctrl-C; Unavailable when a named server is not there."""
    if not _INTERVAL_MIN_S <= args.interval <= _INTERVAL_MAX_S:
        allowed = f"{_INTERVAL_MIN_S:g} to {_INTERVAL_MAX_S:g} seconds"
        raise UsageError("no such interval", where="--interval", found=args.interval, allowed=allowed)
    once = args.once or not (args.json or sys.stdout.isatty())
    views = _views(args, min(args.interval, _ONCE_S) if once else args.interval)
    if once:
        _print(next(views), args.json)
    elif args.json:
        for view in views:
            _print(view, True)
    else:
        _watch(views)
    return 0


def _views(args: argparse.Namespace, interval_s: float) -> Iterator[dict[str, Any]]:
    """What is so, every `interval_s`; the first one after the first interval."""
    before: Mapping[int, Look] = {one.server.pid: one for one in map(look, chosen_servers(args))}
    with DeviceUsers() as users:
        while True:
            time.sleep(interval_s)
            now = {one.server.pid: one for one in map(look, chosen_servers(args))}
            servers = [activity(one, before.get(pid)) for pid, one in now.items()]
            view = {"interval_s": interval_s, "temperatures_c": temperatures(), "devices": users.figures()}
            yield view | {"servers": servers}
            before = now


def _print(view: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(view), flush=True)
        return
    from rich.console import Console

    from dpfedge.cli.top_screen import screen

    # a file or a pipe is as wide as it needs to be
    console = Console(width=None if sys.stdout.isatty() else 100, no_color=_colourless(), highlight=False)
    console.print(screen(view))


def _watch(views: Iterator[Mapping[str, Any]]) -> None:
    from rich.console import Console
    from rich.live import Live

    from dpfedge.cli.top_screen import screen

    with Live(console=Console(no_color=_colourless()), screen=True, auto_refresh=False) as live:
        for view in views:
            live.update(screen(view), refresh=True)


def _colourless() -> bool:
    return bool(os.environ.get("NO_COLOR"))
