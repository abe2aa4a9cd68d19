# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route attach|detach|status`: routing in the kernel, text or JSON; `dpfedge.routing.kernel` does the work."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpfedge.errors import Unavailable, UsageError

__all__ = ["EXAMPLES", "add_actions", "attach", "detach", "status", "whole"]

EXAMPLES = """\
  dpfedge route attach --service 10.255.0.1:8000            connections to it go where the table says, until it ends
  dpfedge route status                                      what is attached, and counters that prove what it does
  dpfedge route detach"""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def whole(option: str, text: str, least: int, most: int) -> int:
    """The number that was typed for an option; UsageError for another one, or none."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else -1
    if not least <= number <= most:
        raise UsageError("a whole number is wanted", where=option, found=repr(text), allowed=f"{least}..{most}")
    return number


def add_actions(actions: Any) -> None:
    """Declare the three actions and their options."""
    one = actions.add_parser("attach", help="let the kernel route connections to a service, until it is ended")
    one.add_argument(
        "--service", action="append", required=True, metavar="ADDRESS:PORT",
        help="what clients connect to; nobody needs to have it. Twice: of IPv4 and, as [ADDRESS]:PORT, of IPv6",
    )  # fmt: skip
    one.add_argument("--cgroup", type=Path, metavar="DIR", help="whose processes (default: the host's, the root of v2)")
    source = one.add_mutually_exclusive_group()
    source.add_argument("--table", type=Path, metavar="FILE", help="a published table (default: this host's)")
    source.add_argument("--instances", type=Path, metavar="FILE", help="publish a table of these as this host's")
    one.add_argument(
        "--bits", metavar="B",
        help="with --instances: 2**B table slots (default: by their number, 16 up to 8 of them, 17 up to 16, … 22)",
    )  # fmt: skip
    one.add_argument(
        "--short-cut", action="store_true", help="messages between ends on this host go from socket to socket"
    )
    one.add_argument("--no-receive", action="store_true", help="give no arriving connections to sockets (sk_lookup)")
    one.add_argument("--json", action="store_true", help="print one JSON object when it is attached")
    for name, text in (
        ("detach", "take the programs out of the kernel again"),
        ("status", "what is attached, and the health of running servers' devices"),
    ):
        actions.add_parser(name, help=text).add_argument("--json", action="store_true", help="print one JSON object")


def attach(args: argparse.Namespace) -> int:
    """Attach, say so, and hold it until SIGTERM, SIGINT or `detach`."""
    from dpfedge.routing.kernel.addresses import Service
    from dpfedge.routing.kernel.control import Server
    from dpfedge.routing.kernel.holder import Holder
    from dpfedge.routing.publication import Published

    service = Service.parse(args.service, "--service")
    with Server() as server, _stop() as stop, _publishing(args.instances, args.bits):
        attachment, why = _try(service, args, Published.open(args.table))
        holder = Holder(service, attachment, why, args.table)
        try:
            figures = holder.figures()
            if attachment is None:
                print(f"dpfedge: the kernel cannot route here: {why}", file=sys.stderr)
            print(json.dumps(figures) if args.json else "\n".join(_lines(figures)), flush=True)
            holder.run(server, stop)
        finally:
            holder.close()
    return 0


def _try(service: Any, args: argparse.Namespace, published: Any) -> tuple[Any, str]:
    """The attachment, or None and why the kernel does not take it."""
    from dpfedge.routing.kernel.attachment import Attachment
    from dpfedge.routing.key import BITS

    try:
        return Attachment(
            service, cgroup=args.cgroup, short_cut=args.short_cut, receive=not args.no_receive,
            key_seed=published.key_seed, bits=max(BITS, published.bits),
        ), ""  # fmt: skip
    except Unavailable as error:
        return None, str(error)


@contextlib.contextmanager
def _publishing(instances: Path | None, bits: str | None) -> Iterator[None]:
    if instances is None:
        if bits is not None:
            raise UsageError("a published table has its bits", where="--bits", allowed="together with --instances")
        yield
        return
    from dpfedge.routing.instances import read_instances
    from dpfedge.routing.key import BITS_MAX, bits_for
    from dpfedge.routing.publication import Publisher, default_path
    from dpfedge.routing.router import Router

    wanted = read_instances(instances)
    size = bits_for(len(wanted)) if bits is None else whole("--bits", bits, 4, BITS_MAX)
    with Publisher(default_path(), bits=size) as publisher:
        Router(publisher).assign(wanted)
        yield


@contextlib.contextmanager
def _stop() -> Iterator[int]:
    """A descriptor that becomes readable at the first signal."""
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    wakeup = signal.set_wakeup_fd(writer)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def detach(args: argparse.Namespace) -> int:
    """Ask the process that holds the routing to end, and wait until it is over."""
    from dpfedge.routing.kernel.control import ask

    figures = ask({"do": "detach"}, until_gone=True)
    print(json.dumps(figures) if args.json else f"detached    process {figures['pid']}")
    return 0


def status(args: argparse.Namespace) -> int:
    """What is attached; what this machine allows where nothing is; the servers that run and their devices' health."""
    from dpfedge.routing.kernel.control import ask

    try:
        figures = ask({"do": "status"})
    except Unavailable:
        why = _why_not()
        figures = {"mode": "not attached", "kernel": not why, "why": why}
    servers = list(_servers())
    lines = [*_lines(figures), *map(_server_line, servers)]
    print(json.dumps(figures | {"servers": servers}, indent=2) if args.json else "\n".join(lines))
    return 0


def _servers() -> Iterator[dict[str, Any]]:
    """The running servers of this user, each with what its router says of its devices."""
    from dpfedge.serve.running import ask as ask_server
    from dpfedge.serve.running import running

    for server in running():
        try:
            told = ask_server(server, memory=False)
        except Unavailable as error:
            yield {"pid": server.pid, "package": None, "routing": None, "error": str(error)}
        else:
            yield {"pid": server.pid, "package": told.get("package"), "routing": told.get("routing"), "error": None}


def _server_line(row: dict[str, Any]) -> str:
    routing = row["routing"] or {}
    devices = [
        f"{name} health {one['health']:.2f}{'' if one['healthy'] else ' out'}"
        for name, one in routing.get("instances", {}).items()
    ]
    said = row["error"] or ", ".join(devices) or "not ready"
    generation = f", generation {routing['generation']}" if routing else ""
    return f"server      {row['package'] or 'no package yet'} (process {row['pid']}): {said}{generation}"


def _why_not() -> str:
    """What the kernel's routing would lack here; nothing is attached to find out."""
    from dpfedge.routing.kernel.attachment import load
    from dpfedge.routing.kernel.support import cgroup_of

    try:
        cgroup_of(None)
        load(short_cut=True, receive=True).close()
    except Unavailable as error:
        return str(error)
    return ""


def _lines(figures: dict[str, Any]) -> list[str]:
    mode = figures["mode"]
    if mode == "not attached":
        can = "the kernel can route" if figures["kernel"] else f"the kernel cannot route: {figures['why']}"
        return [f"mode        not attached; {can}"]
    counters = figures["counters"]
    if mode == "user space":
        does = figures["problem"] or f"relayed {counters['relayed']}, refused {counters['refused']}"
        return [
            "mode        user space (legacy): clients look the published table up themselves, others are relayed",
            f"why         {figures['why']}", f"service     {figures['service']}", f"relay       {does}",
            f"process     {figures['pid']}",
        ]  # fmt: skip
    counted = ", ".join(f"{name} {value}" for name, value in counters.items() if value) or "nothing yet"
    on = [name for name, there in (("short-cut", figures["short_cut"]), ("receiving", figures["receive"])) if there]
    lines = [
        f"mode        kernel{', ' + ' and '.join(on) if on else ''}", f"service     {figures['service']}",
        f"cgroup      {figures['cgroup']}", f"generation  {figures['generation']}", f"counted     {counted}",
        f"process     {figures['pid']}",
    ]  # fmt: skip
    if figures["unreachable"]:
        lines.append(f"unreachable {', '.join(figures['unreachable'])}: names that are no addresses")
    return lines + ([f"problem     {figures['problem']}"] if figures["problem"] else [])
