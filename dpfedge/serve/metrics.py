# SPDX-License-Identifier: Apache-2.0
"""What happened since the start, as numbers in; Prometheus' text format (version 0.0.4) out.

It measures nothing by itself and keeps no text of any request.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import field
from typing import Any

from dpfedge.pipeline.events import AudioChunk, Event, TextDelta, Transcript, TurnDone
from dpfedge.records import dataclass

__all__ = ["Metrics"]

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_PLACES = ("at_ms", "start_ms", "end_ms")  # on the session's clock: when, not how long
Labels = tuple[tuple[str, str], ...]

_HELP = {
    "dpfedge_http_requests_total": ("counter", "requests answered, by endpoint and status"),
    "dpfedge_http_request_seconds": ("histogram", "request received to last byte of the answer"),
    "dpfedge_first_output_seconds": ("histogram", "turn asked for to its first text or sound"),
    "dpfedge_stage_seconds": ("histogram", "times the stages report for each turn"),
    "dpfedge_turns_total": ("counter", "turns ended, by request mode and finish"),
    "dpfedge_tokens_total": ("counter", "llm tokens read (prompt) and written (completion)"),
    "dpfedge_ready": ("gauge", "1 when every stage is warm"),
    "dpfedge_requests_in_flight": ("gauge", "answers being made now"),
    "dpfedge_stage_ready": ("gauge", "1 when this stage is warm"),
    "dpfedge_stage_restarts_total": ("counter", "times this stage's process came back"),
    "dpfedge_stage_rss_bytes": ("gauge", "resident memory of this stage's process"),
    "dpfedge_stage_pss_bytes": ("gauge", "proportional share of memory of this stage's process"),
    "dpfedge_temperature_celsius": ("gauge", "temperature of the thermal zone nearest to throttling"),
    "dpfedge_headroom_celsius": ("gauge", "degrees left until that zone throttles"),
    "dpfedge_memory_free_ratio": ("gauge", "free share of the machine's memory, or of the tightest cgroup's"),
    "dpfedge_power_mode": ("gauge", "1 for the power mode that is set"),
    "dpfedge_ladder_level": ("gauge", "steps of the degrade ladder that are in force"),
    "dpfedge_ladder_entered_total": ("counter", "times this step of the degrade ladder was entered"),
    "dpfedge_memory_low": ("gauge", "1 while new work that is not urgent goes last, for want of memory"),
    "dpfedge_demoted_total": ("counter", "requests that went last for want of memory"),
    "dpfedge_instance_health": ("gauge", "health of this instance, 0 to 1"),
    "dpfedge_instance_healthy": ("gauge", "1 while this instance is given new requests"),
    "dpfedge_no_instance_total": ("counter", "requests refused because a device they need is not healthy"),
    "dpfedge_route_generation": ("gauge", "how often the routing table was published"),
    "dpfedge_link_sent_total": ("counter", "messages sent on this link"),
    "dpfedge_link_received_total": ("counter", "messages received on this link"),
    "dpfedge_link_dropped_total": ("counter", "messages dropped on this link"),
    "dpfedge_link_copies_total": ("counter", "payload copies made on this link"),
    "dpfedge_link_copied_bytes_total": ("counter", "payload bytes copied on this link"),
    "dpfedge_link_depth": ("gauge", "messages waiting on this link"),
    "dpfedge_link_in_flight": ("gauge", "messages leased by this link's consumer"),
}
_LINK_FIELDS = {
    "sent": "sent_total",
    "received": "received_total",
    "dropped": "dropped_total",
    "copies": "copies_total",
    "copied_bytes": "copied_bytes_total",
    "depth": "depth",
    "in_flight": "in_flight",
}


@dataclass(slots=True)
class _Histogram:
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.buckets[bisect_left(_BOUNDS, value)] += 1
        self.total += value


class Metrics:
    """Counters and histograms of one server."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(lambda: defaultdict(_Histogram))
        self.last: tuple[str, TurnDone] | None = None
        """Mode and end of the turn that ended last."""

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to the counter `dpfedge_<name>`."""
        self._counters[f"dpfedge_{name}"][tuple(sorted(labels.items()))] += amount

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        """Add a time to the histogram `dpfedge_<name>`."""
        self._histograms[f"dpfedge_{name}"][tuple(sorted(labels.items()))].add(seconds)

    async def watch(self, mode: str, events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        """The same events, counted as they pass; closing this closes `events`."""
        started: float | None = time.monotonic()
        closing = aclosing(events) if isinstance(events, AsyncGenerator) else nullcontext(events)
        async with closing as source:
            async for event in source:
                if started is not None and isinstance(event, (TextDelta, AudioChunk, Transcript)):
                    self.observe("first_output_seconds", time.monotonic() - started, mode=mode)
                    started = None
                if isinstance(event, TurnDone):
                    self.turn(mode, event)
                yield event

    def turn(self, mode: str, done: TurnDone) -> None:
        """Count one finished turn and the times and tokens its stages report."""
        self.last = (mode, done)
        self.count("turns_total", mode=mode, finish=done.finish)
        for stage, report in done.report.items():
            for key, value in report.items():
                if _is_time(key, value):
                    self.observe("stage_seconds", value / 1000, stage=stage, mark=key.removesuffix("_ms"))
        for kind in ("prompt", "completion"):
            self.count("tokens_total", done.report.get("llm", {}).get(f"{kind}_tokens", 0), kind=kind)

    def last_turn(self) -> dict[str, Any] | None:
        """The turn that ended last: mode, number, finish, `ago_ms`, and the times of its stages; no words."""
        if self.last is None:
            return None
        mode, done = self.last
        times = {
            stage: {key: round(value, 3) for key, value in report.items() if _is_time(key, value)}
            for stage, report in done.report.items()
        }
        ago_ms = round((time.monotonic_ns() - done.at_ns) / 1e6, 1)
        named = {stage: row for stage, row in times.items() if row}
        return {"mode": mode, "turn": done.turn, "finish": done.finish, "ago_ms": ago_ms, "stages": named}

    def render(self, status: Mapping[str, Any], ready: bool, active: int) -> str:
        """Everything as Prometheus text; `status` is the runtime's."""
        gauges = dict(_gauges(status, ready, active))
        lines: list[str] = []
        for name, (kind, text) in _HELP.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{_labels(labels)} {value:g}" for labels, value in gauges.get(name, [])]
            lines += [f"{name}{_labels(labels)} {value:.17g}" for labels, value in self._counters[name].items()]
            for labels, histogram in self._histograms[name].items():
                lines += _histogram_lines(name, labels, histogram)
        return "\n".join(lines) + "\n"


def _is_time(key: str, value: Any) -> bool:
    return key.endswith("_ms") and key not in _PLACES and isinstance(value, (int, float))


def _gauges(status: Mapping[str, Any], ready: bool, active: int) -> Iterator[tuple[str, list[tuple[Labels, float]]]]:
    rows = status.get("stages", {})
    yield "dpfedge_ready", [((), float(ready))]
    yield "dpfedge_requests_in_flight", [((), active)]
    yield "dpfedge_stage_ready", [((("stage", name),), float(row["state"] == "ready")) for name, row in rows.items()]
    for key, name in (("restarts", "restarts_total"), ("rss_bytes", "rss_bytes"), ("pss_bytes", "pss_bytes")):
        yield f"dpfedge_stage_{name}", [((("stage", stage),), row[key]) for stage, row in rows.items() if key in row]
    yield from _pressed(status.get("degrade") or {})
    yield from _routed(status.get("routing") or {}, status.get("memory") or {})
    links = status.get("links", {})
    for key, name in _LINK_FIELDS.items():
        yield f"dpfedge_link_{name}", [((("link", link),), row[key]) for link, row in links.items()]


def _pressed(degrade: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[Labels, float]]]]:
    """What no sensor tells is left out."""
    now = degrade.get("pressure", {})
    zone: Labels = (("zone", now.get("zone") or ""),)
    for key, name, labels in (
        ("temperature_c", "temperature_celsius", zone),
        ("headroom_c", "headroom_celsius", zone),
        ("memory_free", "memory_free_ratio", ()),
    ):
        yield f"dpfedge_{name}", [] if now.get(key) is None else [(labels, now[key])]
    yield "dpfedge_power_mode", [((("mode", now["power_mode"]),), 1.0)] if now.get("power_mode") else []
    yield "dpfedge_ladder_level", [((), degrade["level"])] if degrade.get("steps") else []
    entered = degrade.get("entered", {})
    yield "dpfedge_ladder_entered_total", [((("step", step),), count) for step, count in entered.items()]


def _routed(routing: Mapping[str, Any], memory: Mapping[str, Any]) -> Iterator[tuple[str, list[tuple[Labels, float]]]]:
    for key, name in (("low", "memory_low"), ("demoted", "demoted_total")):
        yield f"dpfedge_{name}", [((), float(memory[key]))] if key in memory else []
    rows = routing.get("instances", {})
    for key in ("health", "healthy"):
        yield f"dpfedge_instance_{key}", [((("instance", name),), float(row[key])) for name, row in rows.items()]
    for key, name in (("refused", "no_instance_total"), ("generation", "route_generation")):
        yield f"dpfedge_{name}", [((), routing[key])] if key in routing else []


def _labels(labels: Labels) -> str:
    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{key}="{quoted(value)}"' for key, value in labels) + "}" if labels else ""


def _histogram_lines(name: str, labels: Labels, histogram: _Histogram) -> Iterator[str]:
    seen = 0
    for bound, amount in zip((*_BOUNDS, float("inf")), histogram.buckets, strict=True):
        seen += amount
        shown = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f"{name}_bucket{_labels((*labels, ('le', shown)))} {seen}"
    yield f"{name}_sum{_labels(labels)} {histogram.total:.9g}"
    yield f"{name}_count{_labels(labels)} {seen}"
