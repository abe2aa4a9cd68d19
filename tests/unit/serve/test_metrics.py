# SPDX-License-Identifier: Apache-2.0
"""Events and numbers become Prometheus' text."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from dpfedge.pipeline.events import AudioChunk, Event, SpeechStarted, TextDelta, TurnDone
from dpfedge.serve.metrics import Metrics

LINK = {"sent": 4, "received": 3, "dropped": 0, "copies": 1, "copied_bytes": 9, "depth": 1, "in_flight": 2}
STATUS = {"stages": {"llm": {"state": "ready", "restarts": 2, "pss_bytes": 7}}, "links": {"llm.voice": LINK}}


def rows(metrics: Metrics, status: Any = STATUS) -> dict[str, float]:
    text = metrics.render(status, True, 3)
    return {key: float(value) for key, _, value in (r.rpartition(" ") for r in text.splitlines() if r[0] != "#")}


def test_status__is_shown_as_gauges() -> None:
    """Stages, links and answers in flight; what the status lacks is left out."""
    found = rows(Metrics())

    assert (found["dpfedge_ready"], found["dpfedge_requests_in_flight"]) == (1, 3)
    assert found['dpfedge_stage_ready{stage="llm"}'] == 1
    assert found['dpfedge_stage_restarts_total{stage="llm"}'] == 2
    assert found['dpfedge_stage_pss_bytes{stage="llm"}'] == 7
    assert found['dpfedge_link_copied_bytes_total{link="llm.voice"}'] == 9
    assert not any(key.startswith("dpfedge_stage_rss_bytes") for key in found)


DEGRADE = {
    "pressure": {
        "temperature_c": 71.5, "headroom_c": 27.5, "zone": "gpu-thermal", "memory_free": 0.25, "power_mode": "15W",
    },
    "level": 1, "steps": ["warm", "hot"], "entered": {"warm": 3, "hot": 0},
}  # fmt: skip


def test_status__shows_the_machine_and_the_ladder() -> None:
    """What no sensor tells is left out, and so is the ladder of a pipeline that has none."""
    found = rows(Metrics(), {**STATUS, "degrade": DEGRADE})

    assert found['dpfedge_temperature_celsius{zone="gpu-thermal"}'] == 71.5
    assert found['dpfedge_headroom_celsius{zone="gpu-thermal"}'] == 27.5
    assert found["dpfedge_memory_free_ratio"] == 0.25
    assert found['dpfedge_power_mode{mode="15W"}'] == 1
    assert found["dpfedge_ladder_level"] == 1
    assert found['dpfedge_ladder_entered_total{step="warm"}'] == 3
    nothing = dict.fromkeys(DEGRADE["pressure"])  # type: ignore[call-overload]
    empty = {"pressure": nothing, "level": 0, "steps": [], "entered": {}}
    assert rows(Metrics(), {**STATUS, "degrade": empty}) == rows(Metrics())


def test_status__shows_instances_and_demoted_work() -> None:
    """Health of each device, refusals, and whether work goes last; nothing of them where nobody looks."""
    rows_of = {"cuda:0": {"health": 0.5, "healthy": True}, "cpu:0": {"health": 0.0, "healthy": False}}
    routing = {"instances": rows_of, "refused": 2, "generation": 9}
    found = rows(Metrics(), {**STATUS, "routing": routing, "memory": {"low": True, "demoted": 4}})
    assert found['dpfedge_instance_health{instance="cuda:0"}'] == 0.5
    assert found['dpfedge_instance_healthy{instance="cpu:0"}'] == 0
    assert (found["dpfedge_no_instance_total"], found["dpfedge_route_generation"]) == (2, 9)
    assert (found["dpfedge_memory_low"], found["dpfedge_demoted_total"]) == (1, 4)
    assert rows(Metrics(), {**STATUS, "routing": None}) == rows(Metrics())


def test_every_name__has_help_and_type_before_its_rows() -> None:
    """Version 0.0.4 of the text format."""
    metrics = Metrics()
    metrics.count("http_requests_total", endpoint="/x", status="200")
    metrics.observe("http_request_seconds", 0.1, endpoint="/x")
    known: set[str] = set()
    for line in metrics.render(STATUS, False, 0).splitlines():
        if line.startswith("# TYPE "):
            known.add(line.split()[2])
        elif not line.startswith("#"):
            name = line.partition("{")[0].partition(" ")[0]
            assert {name, *(name.removesuffix(end) for end in ("_bucket", "_sum", "_count"))} & known, line


def test_counter__adds_by_labels() -> None:
    """The order of labels is no difference; quotes and line ends are escaped."""
    metrics = Metrics()
    metrics.count("turns_total", mode="chat", finish="stop")
    metrics.count("turns_total", 2, finish="stop", mode="chat")
    metrics.count("turns_total", mode='a"b\\c\nd', finish="x")
    found = rows(metrics)

    assert found['dpfedge_turns_total{finish="stop",mode="chat"}'] == 3
    assert found['dpfedge_turns_total{finish="x",mode="a\\"b\\\\c\\nd"}'] == 1


def test_histogram__is_cumulative_and_bounds_belong_below() -> None:
    """A time equal to a bound counts there; the last bucket holds all."""
    metrics = Metrics()
    for seconds in (0.005, 0.3, 1000.0):
        metrics.observe("first_output_seconds", seconds, mode="chat")
    found = rows(metrics)

    def bucket(bound: str) -> float:
        return found[f'dpfedge_first_output_seconds_bucket{{mode="chat",le="{bound}"}}']

    assert (bucket("0.005"), bucket("0.25"), bucket("0.5"), bucket("60"), bucket("+Inf")) == (1, 1, 2, 2, 3)
    assert found['dpfedge_first_output_seconds_count{mode="chat"}'] == 3
    assert found['dpfedge_first_output_seconds_sum{mode="chat"}'] == 1000.305


def test_watch__passes_events_on_and_counts_them() -> None:
    """The first word or sound is timed once; a turn's times and tokens are kept, its places on the clock are not."""
    report = {"llm": {"prompt_tokens": 7, "completion_tokens": 3, "ttft_ms": 12.0}, "decoder": {"at_ms": 5000}}
    given = [SpeechStarted(1, 0, 0), TextDelta(1, 0, "a"), TextDelta(1, 0, "b"), TurnDone(1, 0, "stop", report)]
    metrics = Metrics()

    async def events() -> AsyncIterator[Event]:
        for event in given:
            yield event

    async def watch() -> list[Event]:
        return [event async for event in metrics.watch("chat", events())]

    assert asyncio.run(watch()) == given
    found = rows(metrics)
    assert found['dpfedge_first_output_seconds_count{mode="chat"}'] == 1
    assert found['dpfedge_tokens_total{kind="prompt"}'] == 7
    assert found['dpfedge_tokens_total{kind="completion"}'] == 3
    assert found['dpfedge_stage_seconds_sum{mark="ttft",stage="llm"}'] == 0.012
    assert not any("at" in key.partition("mark=")[2][:4] for key in found)


def test_watch__closed_early_closes_what_it_watches() -> None:
    """A client that leaves frees its turn."""
    closed = []

    async def events() -> AsyncIterator[Event]:
        try:
            yield AudioChunk(1, 0, b"", 1)  # type: ignore[arg-type]
        finally:
            closed.append(True)

    async def leave() -> None:
        watched = Metrics().watch("speak", events())
        await anext(watched)
        await watched.aclose()

    asyncio.run(leave())
    assert closed == [True]


def test_last_turn__tells_its_times_and_no_words() -> None:
    """None before the first one; moments and words of the report are left out."""
    metrics = Metrics()
    assert metrics.last_turn() is None
    report: dict[str, Any] = {"llm": {"prefill_ms": 1.23456, "started_ns": 9, "source": "llm", "start_ms": 4}, "x": {}}
    metrics.turn("chat", TurnDone(7, 1, "stop", report))
    told = metrics.last_turn()

    assert told is not None
    assert told.pop("ago_ms") > 0
    assert told == {"mode": "chat", "turn": 7, "finish": "stop", "stages": {"llm": {"prefill_ms": 1.235}}}
