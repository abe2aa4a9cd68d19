# SPDX-License-Identifier: Apache-2.0
"""`dpfedge route`: keys, tables, decisions and their proof, as text or JSON; the work is done by `dpfedge.routing`."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.cli import route_fingerprint, route_kernel
from dpfedge.errors import NoInstance, UsageError
from dpfedge.routing.key import BITS, BITS_MAX, bits_for, encode, hash_key, mark_of, slot_of

if TYPE_CHECKING:
    from dpfedge.routing.instances import Instance

__all__ = ["HELP", "NAME", "add_arguments", "run"]

NAME = "route"
HELP = f"""Say which instance serves a session, and why; show a table; prove a log of decisions; let the kernel route.

examples:
  dpfedge route key --model llm --user alice --session-ms 1735689600000
  dpfedge route table --instances instances.json            a list of {{"name": …, "weight": …}}
  dpfedge route explain --model llm --user alice --session-ms 1735689600000 --instances instances.json
  dpfedge route replay route.log                            exit code 1: a line is not as the rules say
{route_kernel.EXAMPLES}
{route_fingerprint.EXAMPLES}

`explain` reads the table that this host's router publishes (route/table in $XDG_RUNTIME_DIR/dpfedge), else the one of
the `dpfedge serve` that runs (its devices), or the one of `--table FILE`, or makes one of `--instances FILE`. Where
nobody publishes one it looks at this machine's devices, once, and says so. The rules: `dpfedge/routing/ROUTING.md`.
`attach` needs CAP_BPF and CAP_NET_ADMIN and Linux 5.15; without
them it says so, and clients route in user space by the same table. See `firmware_bridge/ebpf/README.md`."""

_AUTO = "auto"
_SHOWN = 20  # differences that are printed; `--json` has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(
        dest="action", metavar="key|table|explain|replay|fingerprint|attach|detach|status", required=True
    )
    key = actions.add_parser("key", help="the hash and the table slot of a session")
    explain = actions.add_parser("explain", help="the instance of a session, its health, and why it is that one")
    table = actions.add_parser("table", help="the digest and the owners of a table")
    replay = actions.add_parser("replay", help="prove every change and decision of a log")
    for one in (key, explain):
        one.add_argument("--model", required=True, metavar="M", help="0 to 120 bytes")
        one.add_argument("--user", required=True, metavar="U", help="0 to 120 bytes")
        one.add_argument("--session-ms", required=True, metavar="T", help="when the session began, ms since 1970 UTC")
    key.add_argument("--bits", default=str(BITS), metavar="B", help=f"of a table slot's number (default: {BITS})")
    source = explain.add_mutually_exclusive_group()
    source.add_argument("--instances", type=Path, metavar="FILE", help="make a table of these")
    source.add_argument("--table", type=Path, metavar="FILE", help="a published table (default: this host's)")
    table.add_argument("--instances", type=Path, required=True, metavar="FILE", help="JSON: [{name, weight}, …]")
    table.add_argument(
        "--bits", default=str(BITS), metavar="B",
        help=f"2**B table slots (default: {BITS}), or auto: by the number of instances, as `attach` makes it",
    )  # fmt: skip
    explain.add_argument(
        "--bits", default=_AUTO, metavar="B", help="of --instances: 2**B table slots (default: auto, as `attach`)"
    )
    replay.add_argument("log", type=Path, metavar="LOG", help="what a router wrote")
    route_fingerprint.add_action(actions)
    route_kernel.add_actions(actions)
    for one in (key, explain, table, replay):
        one.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Carry out one action."""
    actions: dict[str, Callable[[argparse.Namespace], int]] = {
        "key": _key, "table": _table, "explain": _explain, "replay": _replay,
        "fingerprint": route_fingerprint.fingerprint,
        "attach": route_kernel.attach, "detach": route_kernel.detach, "status": route_kernel.status,
    }  # fmt: skip
    return actions[args.action](args)


def _session(args: argparse.Namespace) -> tuple[bytes, bytes, int]:
    # the bytes that were typed, whatever the terminal's encoding
    began = route_kernel.whole("--session-ms", args.session_ms, 0, (1 << 64) - 1)
    return os.fsencode(args.model), os.fsencode(args.user), began


def _bits(args: argparse.Namespace, instances: Sequence[Instance] | None = None) -> int:
    if instances is not None and args.bits == _AUTO:
        return bits_for(len(instances))
    return route_kernel.whole("--bits", args.bits, 4, BITS_MAX)


def _print(args: argparse.Namespace, figures: dict[str, Any], lines: Sequence[str]) -> None:
    print(json.dumps(figures, indent=2) if args.json else "\n".join(lines))


def _key(args: argparse.Namespace) -> int:
    session, bits = _session(args), _bits(args)
    hash = hash_key(*session)
    figures = {
        "hash": f"{hash:016x}", "slot": slot_of(hash, bits), "bits": bits, "mark": f"{mark_of(hash):08x}",
        "key": encode(*session).hex(),
    }  # fmt: skip
    _print(args, figures, [f"hash        {figures['hash']}", f"table slot  {figures['slot']} of {1 << bits}"])
    return 0


def _table(args: argparse.Namespace) -> int:
    from dpfedge.routing.instances import read_instances
    from dpfedge.routing.table import Table

    instances = read_instances(args.instances)
    bits = _bits(args, instances)
    table = Table.of(instances, bits)
    shares = table.shares(len(instances))
    rows = [
        {"index": index, "name": one.name, "weight": one.weight, "healthy": one.healthy, "slots": share}
        for index, (one, share) in enumerate(zip(instances, shares, strict=True))
    ]
    digest = f"{table.digest():016x}"
    if args.json:
        figures = {"digest": digest, "bits": bits, "instances": rows, "owners": table.owners.tolist()}
        print(json.dumps(figures))
        return 0
    nobody = (1 << bits) - sum(shares)
    width = max([len(one.name) for one in instances], default=0)
    print(f"digest      {digest}\ntable slots {1 << bits}" + (f", {nobody} of them nobody's" if nobody else ""))
    for one, share in zip(instances, shares, strict=True):
        state = "" if one.healthy else "  not healthy"
        print(f"{one.name.ljust(width)}  weight {one.weight:>5}  {share:>7} slots  {share / (1 << bits):7.2%}{state}")
    return 0


def _explain(args: argparse.Namespace) -> int:
    from dpfedge.routing.publication import Published

    session = _session(args)
    if args.instances is None and args.bits != _AUTO:
        raise UsageError("a published table has its bits", where="--bits", allowed="together with --instances")
    if args.instances is not None:
        from dpfedge.routing.instances import read_instances

        instances = read_instances(args.instances)
        # nobody sampled them: an instance of a file is taken at its word
        figures = _of_instances(instances, hash_key(*session), {}, _bits(args, instances))
        figures |= {"source": str(args.instances)}
    elif (path := _table_path(args.table)) is None:
        figures = _of_devices(hash_key(*session)) | {"source": "this machine's devices: no router publishes a table"}
    else:
        figures = _of_published(Published.open(path), session) | {"source": str(path)}
    next_one = figures["successors"][0] if figures["successors"] else "nobody"
    lines = [
        f"instance    {figures['instance']}", f"health      {figures['health']:.2f}",
        f"hash        {figures['hash']}", f"table slot  {figures['slot']} of {1 << figures['bits']}",
        f"why         {figures['why']}", f"next        {next_one}, if it fails", f"source      {figures['source']}",
    ]  # fmt: skip
    _print(args, figures, lines)
    return 0


def _table_path(given: Path | None) -> Path | None:
    """The table to read: the one named, the host's, or that of the one server that runs; None where there is none."""
    from dpfedge.routing.publication import default_path, server_tables

    if given is not None or default_path().exists():
        return given or default_path()
    tables = server_tables()
    if len(tables) > 1:
        names, remedy = ", ".join(map(str, tables)), "name one with --table"
        raise UsageError("several servers run, each with a table", where="--table", allowed=names, remedy=remedy)
    return tables[0] if tables else None


def _of_published(table: Any, session: tuple[bytes, bytes, int]) -> dict[str, Any]:
    from dpfedge.routing.instances import Instance

    hash = hash_key(*session, table.key_seed)
    try:
        _, generation, entry = table.entry(hash)
    except NoInstance as error:
        raise _with_map(error) from None
    rows = [(one.text, one) for one in table.entries().values()]
    others = [Instance(name, one.effective) for name, one in rows]
    figures = _told(others, hash, table.bits, entry.text)
    figures |= {"health": entry.health, "healthy": entry.healthy, "generation": generation}
    return figures | {"health_map": table.health_map()}


def _of_devices(hash: int) -> dict[str, Any]:
    from dpfedge.backend.registry import Registry
    from dpfedge.routing.devices import device_sources, look

    instances, scores = look(device_sources(Registry.load()))
    return _of_instances(instances, hash, scores)


def _of_instances(
    instances: list[Instance], hash: int, scores: Mapping[str, float], bits: int = BITS
) -> dict[str, Any]:
    from dpfedge.routing.table import Table

    table = Table.of(instances, bits)
    owner = table.owner(slot_of(hash, bits))
    if owner is None:
        health = {one.name: {**_health(one, scores), "weight": one.weight} for one in instances}
        raise _with_map(NoInstance("no instance can serve the request", health=health))
    return _told(instances, hash, bits, instances[owner].name) | _health(instances[owner], scores)


def _health(one: Instance, scores: Mapping[str, float]) -> dict[str, Any]:
    return {"health": scores.get(one.name, float(one.healthy)), "healthy": one.healthy}


def _told(instances: Sequence[Instance], hash: int, bits: int, owner: str) -> dict[str, Any]:
    from dpfedge.routing.table import ranking

    slot = slot_of(hash, bits)
    order = [instances[place].name for place in ranking(instances, slot)]
    why = f"of {len(order)} instances with weight it has the lowest cost for its weight at table slot {slot}"
    after = [name for name in order if name != owner]
    return {
        "instance": owner, "hash": f"{hash:016x}", "slot": slot, "bits": bits, "why": why, "successors": after[:3],
    }  # fmt: skip


def _with_map(error: NoInstance) -> NoInstance:
    """The error as a person sees it: with the health map in its text."""
    rows = [
        f"{name}: {', '.join(f'{key} {value}' for key, value in row.items())}" for name, row in error.health.items()
    ]
    found = "; ".join(rows) or "no instances at all"
    return NoInstance(
        error.what, health=error.health, found=f"health map {{{found}}}", remedy="give one weight or health"
    )


def _replay(args: argparse.Namespace) -> int:
    from dpfedge.routing.replay import replay

    found = replay(args.log)
    figures = {
        "proved": found.proved, "changes": found.changes, "decisions": found.decisions, "tables": found.tables,
        "differences": [asdict(one) for one in found.differences],
    }  # fmt: skip
    word = "proved" if found.proved else "NOT proved"
    lines = [f"{word}: {found.changes} changes, {found.decisions} decisions; {found.tables} tables built anew"]
    for one in found.differences[:_SHOWN]:
        lines.append(f"{args.log}:{one.line}: {one.what}: logged {one.logged}, proved {one.proved}")
    if len(found.differences) > _SHOWN:
        lines.append(f"… {len(found.differences) - _SHOWN} more")
    _print(args, figures, lines)
    return 0 if found.proved else 1
