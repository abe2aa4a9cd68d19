# SPDX-License-Identifier: Apache-2.0
"""A running server looked at twice in, what it does per second and what it is now out, as plain data with units.

Everything is read from /v1/status, /proc and /sys; the server counts nothing more for it, and adds up no memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from dpfedge.errors import Unavailable
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.thermal import read_zone, read_zones
from dpfedge.pipeline.pressure import sensor_root
from dpfedge.pipeline.processes import cpu_seconds, memory_of
from dpfedge.records import dataclass
from dpfedge.serve.running import Server, ask

__all__ = ["Look", "activity", "look", "temperatures"]

_LINK_FIELDS = ("depth", "loaned", "in_flight", "dropped", "corrupt", "copies")


@dataclass(frozen=True, slots=True)
class Look:
    """One server at one moment. `told`: its status; `error`: why it gave none.

    By process id, for those that could be read: `cpu_s`, processor time, and `pss`, memory in bytes.
    """

    server: Server
    at_ns: int
    told: Mapping[str, Any]
    cpu_s: Mapping[int, float]
    pss: Mapping[int, int] = field(default_factory=dict)
    error: str | None = None


def look(server: Server) -> Look:
    """Ask a server, and the kernel about its processes."""
    try:
        told, error = ask(server, memory=False), None
    except Unavailable as gone:
        told, error = {}, str(gone)
    used: dict[int, float] = {}
    held: dict[int, int] = {}
    for _, row in _rows(told):
        # processes end while they are looked at
        with contextlib.suppress(OSError, LookupError, ValueError):
            pid = int(row["pid"])
            used[pid] = cpu_seconds(pid)
            held[pid] = memory_of(pid)["pss_bytes"]
    return Look(server, time.monotonic_ns(), told, used, held, error)


def activity(now: Look, before: Look | None = None) -> dict[str, Any]:
    """What `dpfedge top` shows of a server; rates are None at the first look."""
    if now.error is not None:
        return {"pid": now.server.pid, "error": now.error}
    told, seconds = now.told, (now.at_ns - before.at_ns) / 1e9 if before is not None else 0.0
    processes = [
        {
            "name": name, "pid": row.get("pid"), "state": row.get("state"), "restarts": row.get("restarts"),
            "cpu_percent": _cpu(now, before, row.get("pid"), seconds), "pss_bytes": now.pss.get(row.get("pid", 0)),
        }
        for name, row in _rows(told)
    ]  # fmt: skip
    old = (before.told.get("links") or {}) if before is not None else {}
    links = [
        {"name": name, "sent_per_s": _rate(row, old.get(name), seconds), "sent": row.get("sent")}
        | {key: row.get(key) for key in _LINK_FIELDS}
        for name, row in (told.get("links") or {}).items()
    ]
    named = {
        key: told.get(key)
        for key in (
            "package",
            "version",
            "board",
            "ready",
            "requests",
            "active",
            "last_turn",
            "degrade",
            "routing",
            "memory",
            "native",
        )
    }
    return {"pid": now.server.pid, "error": None, **named, "processes": processes, "links": links}


def _rows(told: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The server's processes, itself first."""
    for name in ("server", "zygote"):
        if isinstance(row := told.get(name), dict):
            yield name, row
    for name, row in (told.get("stages") or {}).items():
        if isinstance(row, dict):
            yield name, row


def _cpu(now: Look, before: Look | None, pid: Any, seconds: float) -> float | None:
    if before is None or seconds <= 0 or pid not in now.cpu_s or pid not in before.cpu_s:
        return None
    return round((now.cpu_s[pid] - before.cpu_s[pid]) * 100 / seconds, 1)


def _rate(row: Mapping[str, Any], old: Mapping[str, Any] | None, seconds: float) -> float | None:
    if old is None or seconds <= 0:
        return None
    sent = int(row.get("sent", 0)) - int(old.get("sent", 0))
    return round(sent / seconds, 1) if sent >= 0 else None  # less than before: another runtime took over


def temperatures(root: Root | None = None) -> dict[str, float]:
    """Zone → °C of every thermal zone that tells; a second zone of the same type has its number behind it."""
    root, found = root or sensor_root(), dict[str, float]()
    for zone in read_zones(root):
        celsius = read_zone(root, zone)
        if celsius is not None:  # else it sleeps
            found[zone.name if zone.name not in found else f"{zone.name} {zone.number}"] = celsius
    return found
