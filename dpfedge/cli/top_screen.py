# SPDX-License-Identifier: Apache-2.0
"""What `dpfedge top` shows: one view (plain data) in, one rich renderable out; it asks nobody and measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dpfedge.cli.status import native_lines

__all__ = ["screen"]

_EVENTS = 5  # the last ones
_WARM_C = 85.0  # most SoCs throttle between this and 100 °C


def screen(view: Mapping[str, Any]) -> RenderableType:
    """Every server below the other, temperatures first."""
    parts: list[RenderableType] = []
    if zones := view["temperatures_c"]:
        shown = Text("temperature  ")
        for name, celsius in zones.items():
            shown.append(f"{name} {celsius:.0f} °C  ", style="red" if celsius >= _WARM_C else "")
        parts.append(shown)
    parts += map(Text, _users(view.get("devices") or {}))
    for server in view["servers"]:
        parts += _server(server)
    if not view["servers"]:
        parts.append(Text("no dpfedge serve process of this user is running"))
    return Group(*parts)


def _users(devices: Mapping[str, Any]) -> Iterator[str]:
    """One line for each accelerator that somebody has open."""
    open_by: dict[str, list[str]] = {}
    for use in devices.get("uses", ()):
        if use["open"]:
            open_by.setdefault(use["device"], []).append(f"{use['name']} ({use['pid']})")
    for device, names in open_by.items():
        yield f"{device}  {', '.join(names)}"


def _server(server: Mapping[str, Any]) -> Iterator[RenderableType]:
    if server["error"] is not None:
        yield Text(server["error"], style="red")
        return
    state = "ready" if server["ready"] else "not ready"
    name = f"{server['package'] or 'no package yet'} {server['version'] or ''}".strip()
    head = f"{name} on {server['board'] or 'unknown board'}: {state}, {server['requests'] or 0} requests"
    yield Text(f"{head}, pid {server['pid']}", style="bold")
    yield from _pressed(server.get("degrade") or {})
    yield from _routed(server.get("routing") or {}, server.get("memory") or {})
    yield from map(Text, native_lines(server.get("native") or {}))
    yield _processes(server["processes"])
    yield _links(server["links"])
    if server["last_turn"]:
        yield Text("\n".join(_turn(server["last_turn"])))
    yield from map(Text, _events((server.get("degrade") or {}).get("events") or ()))


def _pressed(degrade: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The machine's state as the server sees it, and the ladder's."""
    now, parts = degrade.get("pressure") or {}, []
    if now.get("temperature_c") is not None:
        left = f", {now['headroom_c']:.0f} °C left" if now.get("headroom_c") is not None else ""
        parts.append(f"{now['zone']} {now['temperature_c']:.0f} °C{left}")
    if now.get("memory_free") is not None:
        parts.append(f"memory {100 * now['memory_free']:.0f} % free")
    if now.get("power_mode"):
        parts.append(f"power mode {now['power_mode']}")
    if parts:
        yield Text("  ".join(parts))
    if steps := degrade.get("steps"):
        level = degrade["level"]
        names = f" ({', '.join(steps[:level])})" if level else ""
        yield Text(f"ladder step {level} of {len(steps)}{names}", style="yellow" if level else "")


def _routed(routing: Mapping[str, Any], memory: Mapping[str, Any]) -> Iterator[RenderableType]:
    """The devices as the router sees them, and whether new work that is not urgent goes last."""
    line, where = Text(), routing.get("stages") or {}
    for name, row in (routing.get("instances") or {}).items():
        stages = ", ".join(stage for stage, instance in where.items() if instance == name)
        out = "" if row["healthy"] else ", out"
        line.append(f"instance {name} ({stages}) health {row['health']:.2f}{out}  ", style="red" if out else "")
    if line:
        yield line
    if memory.get("low"):
        yield Text("memory is low: work that is not urgent goes last", style="yellow")


def _events(events: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for event in events[-_EVENTS:]:
        what = " ".join(str(event[key]) for key in ("stage", "what", "step") if event.get(key))
        reason = f": {event['reason']}" if event.get("reason") else ""
        yield f"{event['ago_ms'] / 1000:.0f} s ago  {what}{reason}"


def _processes(rows: list[Mapping[str, Any]]) -> Table:
    table = _table("process", "pid", "state", right=("CPU %", "PSS MB", "restarts"))
    for row in rows:
        state = row["state"] or "-"
        shown = f"[red]{escape(state)}[/]" if state in ("failed", "restarting") else escape(state)
        pss = None if row["pss_bytes"] is None else row["pss_bytes"] / 1e6
        restarts = f"[yellow]{row['restarts']}[/]" if row["restarts"] else _cell(row["restarts"])
        table.add_row(escape(row["name"]), _cell(row["pid"]), shown, _cell(row["cpu_percent"]), _cell(pss), restarts)
    return table


def _links(rows: list[Mapping[str, Any]]) -> Table:
    table = _table("link", right=("depth", "loans", "leases", "sent/s", "sent", "drops", "copies"))
    for row in rows:
        lost = (row["dropped"] or 0) + (row["corrupt"] or 0)
        drops = f"[red]{lost}[/]" if lost else str(lost)
        cells = [_cell(row[key]) for key in ("depth", "loaned", "in_flight", "sent_per_s", "sent")]
        table.add_row(escape(row["name"]), *cells, drops, _cell(row["copies"]))
    return table


def _table(*left: str, right: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in left:
        table.add_column(name, no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _turn(last: Mapping[str, Any]) -> Iterator[str]:
    yield f"last turn  {last['mode']} {last['turn']}, {last['finish']}, {last['ago_ms'] / 1000:.1f} s ago"
    for stage, times in last["stages"].items():
        shown = "  ".join(f"{key.removesuffix('_ms')} {value:.1f} ms" for key, value in times.items())
        yield f"  {stage.ljust(8)} {shown}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
