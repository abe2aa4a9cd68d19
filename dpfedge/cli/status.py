# SPDX-License-Identifier: Apache-2.0
"""`dpfedge status`: the running servers of this user in, what they serve and what memory their processes share out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.cli.columns import aligned
from dpfedge.errors import DpfError, Unavailable
from dpfedge.serve.holding import holdings
from dpfedge.serve.running import Server, ask, running, server_at

__all__ = ["HELP", "NAME", "add_arguments", "add_which_arguments", "chosen_servers", "native_lines", "run"]

NAME = "status"
HELP = """Show the running servers of this user: package, board, stages, and how much memory their processes share.

examples:
  dpfedge status
  dpfedge status --json
  dpfedge status --socket /run/user/1000/dpfedge/serve-8080.sock

PSS counts each page divided by the number of processes that share it, so that the column adds up. Weights that are
`alone` are in memory for that process only; every other page of them is shared."""

_COLUMNS = ("process", "pid", "state", "restarts", "PSS", "RSS", "weights", "alone")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_which_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_which_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of every verb that looks at running servers: which ones."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("pid", nargs="?", type=int, metavar="PID", help="only the server with this process id")
    which.add_argument("--socket", type=Path, metavar="PATH", help="only the server that listens on this Unix socket")


def run(args: argparse.Namespace) -> int:
    """Print every server that was asked for; Unavailable when a named one is not there, its code when it is silent."""
    reports = [_report(server) for server in chosen_servers(args)]
    if args.json:
        print(json.dumps({"servers": reports}, indent=2))
    else:
        lines = [line for report in reports for line in _lines(report)]
        print("\n".join(lines or ["no dpfedge serve process of this user is running"]))
    named = args.pid is not None or args.socket is not None
    return Unavailable.exit_code if named and any(report["error"] for report in reports) else 0


def chosen_servers(args: argparse.Namespace) -> Sequence[Server]:
    """The servers that the arguments name, else every one of this user; Unavailable when a named one is not there."""
    if args.socket is not None:
        return [server_at(args.socket)]
    servers = running()
    if args.pid is None:
        return servers
    chosen = [server for server in servers if server.pid == args.pid]
    if not chosen:
        raise Unavailable(
            "no dpfedge serve process of this user has this id", where=f"process {args.pid}",
            allowed=", ".join(str(server.pid) for server in servers) or "none is running",
        )  # fmt: skip
    return chosen


def _report(server: Server) -> dict[str, Any]:
    """What one server says, with the memory of each of its processes; `error` instead when it does not answer."""
    places = {"sockets": list(server.paths), "http": [_url(*place) for place in server.ports]}
    try:
        told = ask(server)
    except DpfError as error:
        return {"pid": server.pid, **places, "error": str(error), "processes": []}
    rows = [(name, row) for name in ("server", "zygote") if isinstance(row := told.pop(name, None), dict)]
    rows += [(name, row) for name, row in (told.pop("stages", None) or {}).items() if isinstance(row, dict)]
    processes = [{"name": name, **row, **_held(row.get("pid"))} for name, row in rows]
    return {"pid": server.pid, **places, "error": None, **told, "processes": processes}


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _held(pid: object) -> dict[str, Any]:
    if not isinstance(pid, int):
        return {"packages": {}}
    try:
        return {"packages": holdings(pid)}
    except Unavailable as error:  # it ended meanwhile, or runs as another user
        return {"packages": {}, "error": str(error)}


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    place = "  ".join([*report["http"], *report["sockets"]])
    if report["error"] is not None:
        yield report["error"]
        return
    state = "ready" if report.get("ready") else "not ready"
    name = f"{report.get('package', 'no package yet')} on {report.get('board', 'unknown board')}"
    yield f"{name}: {state}, {report.get('requests', 0)} requests, pid {report['pid']}"
    yield f"  {place}"
    yield from (f"  package {line}" for line in dict.fromkeys(_packages(report["processes"])))
    yield from (f"  {line}" for line in _placed(report["processes"]))
    yield from (f"  {line}" for line in _built(report))
    yield from (f"  {line}" for line in _degraded(report.get("degrade") or {}))
    yield from (f"  {line}" for line in native_lines(report.get("native") or {}))
    rows = [_COLUMNS, *(_cells(process) for process in report["processes"])]
    yield from (f"  {line}" for line in aligned(rows, range(3)))
    yield from (
        f"  {process['name']}: {_failure(process['failure'])}"
        for process in report["processes"]
        if process.get("failure")
    )
    if (report.get("arena") or {}).get("sealed") is False:
        yield "  links: in an unsealed file of the run directory, because memfd_create is refused here"
    for link, counters in (report.get("links") or {}).items():
        if lost := {key: counters[key] for key in ("dropped", "corrupt") if counters.get(key)}:
            yield f"  link {link}: {', '.join(f'{count} {key}' for key, count in lost.items())}"


def _placed(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Which stages run on which device, and those that run on a slower one than the board has."""
    devices: dict[str, list[str]] = {}
    for process in processes:
        if place := process.get("placed"):
            devices.setdefault(f"{place['device']} by {place['target']}", []).append(process["name"])
            if place.get("degraded"):
                yield f"{process['name']}: degraded: {place['degraded']}"
    yield from (f"on {device}: {', '.join(stages)}" for device, stages in devices.items())


def _built(report: Mapping[str, Any]) -> Iterator[str]:
    """What was built on this device and is used, and what is not used, and why."""
    seal = report.get("seal") or {}
    if seal.get("path"):
        yield f"seal {seal['path']}"
    yield from seal.get("stale", ())
    for process in report["processes"]:
        opening = (process.get("facts") or {}).get("prefix", "none")
        if opening in ("package", "seal"):
            yield f"{process['name']}: opening baked in the {opening}"
        elif opening != "none":
            yield f"{process['name']}: {opening}"


def _degraded(degrade: Mapping[str, Any]) -> Iterator[str]:
    """Steps of the ladder that are in force, and those that this machine does without."""
    steps, level = degrade.get("steps") or (), degrade.get("level", 0)
    if steps:
        names = f": {', '.join(steps[:level])}" if level else ""
        yield f"ladder: step {level} of {len(steps)}{names}"
    yield from degrade.get("left_out") or ()


def native_lines(sessions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """One line for each open session of libdpfedge."""
    for number, row in sessions.items():
        said = f"utterances {row['utterances']}, answers {row['answers']}"
        sound = f"{_size(row['heard_bytes'])} heard, {_size(row['sound_bytes'])} sent"
        waiting = f", {_size(row['waiting_bytes'])} waiting for room" if row["waiting_bytes"] else ""
        who = f"native session {number} of process {row['pid']}"
        yield f"{who}: {row['state']}, open for {row['open_ms'] / 1000:.0f} s, {said}, {sound}{waiting}"


def _failure(error: Mapping[str, Any]) -> str:
    """Why a stage is not there, as far as it was said."""
    parts = [str(error.get("what"))] + [f"{key} {error[key]}" for key in ("found", "allowed") if error.get(key)]
    return "; ".join(parts)


def _packages(processes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for process in processes:
        for path, held in process["packages"].items():
            replaced = ", replaced on disk since it was opened" if held["replaced"] else ""
            yield f"{held['name'] or 'of unknown name'}  {path}{replaced}"


def _cells(process: Mapping[str, Any]) -> tuple[str, ...]:
    sections = [held["sections"] for held in process["packages"].values()]
    weights = [kinds[kind] for kinds in sections for kind in ("weights", "sealed") if kind in kinds]  # raw and packed
    memory = [_size(sum(row[key] for row in weights)) if weights else "-" for key in ("rss", "private")]
    restarts = str(process["restarts"]) if "restarts" in process else "-"
    own = [_size(process[key]) if key in process else "-" for key in ("pss_bytes", "rss_bytes")]
    return (process["name"], str(process.get("pid", "-")), str(process.get("state", "-")), restarts, *own, *memory)


def _size(size: float) -> str:
    return f"{size / 1e6:.1f} MB"
