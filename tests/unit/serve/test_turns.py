# SPDX-License-Identifier: Apache-2.0
"""What an observer is told becomes records, in a thread, and never too many."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import StageDied
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.serve import turns
from dpfedge.serve.turns import Happened, Reporter
from dpfedge.stage.api import Mode

PLAN: Any = SimpleNamespace(name="toy")


def test_reporter__tells_each_consumer_what_happened() -> None:
    """In order: turns, failures, requests that nobody waited for, stages."""
    found: list[Happened] = []
    other: list[Happened] = []
    reporter = Reporter([found.append, other.append])
    observer = reporter(PLAN)
    error = StageDied("died", stage="llm")
    observer.opened(1, Mode.CONVERSE)
    observer.ended(1, Mode.CONVERSE, TurnDone(1024, 50, "stop"))
    observer.ended(1, Mode.CONVERSE, TurnDone(2048, 60, "cancelled"))
    observer.ended(1, Mode.CONVERSE, Failed(3072, 70, error))
    observer.closed(1)
    observer.opened(2, Mode.CHAT)
    observer.closed(2)
    observer.opened(3, Mode.CHAT)
    observer.ended(3, Mode.CHAT, TurnDone(1, 80, "length"))
    observer.closed(3)
    observer.stage_died("llm")
    observer.stage_ready("llm")
    observer.happened("", {"what": "step entered", "at_ns": 90})
    observer.happened("llm", {"what": "replaced", "at_ns": 91})
    reporter.close()

    told = [(one.what, one.key, one.turn, one.mode, one.stage) for one in found]
    assert told == [
        ("done", 1, 1024, Mode.CONVERSE, ""),
        ("cancelled", 1, 2048, Mode.CONVERSE, ""),
        ("failed", 1, 3072, Mode.CONVERSE, ""),
        ("cancelled", 2, 0, Mode.CHAT, ""),
        ("done", 3, 1, Mode.CHAT, ""),
        ("died", 0, 0, None, "llm"),
        ("ready", 0, 0, None, "llm"),
        ("event", 0, 0, None, ""),
        ("event", 0, 0, None, "llm"),
    ]
    assert found == other
    assert found[0].opened_ns == found[1].opened_ns > 0
    assert {one.package for one in found} == {"toy"}


def test_slow_consumer__loses_records_that_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever puts never waits; when there is space again, the number is told."""
    monkeypatch.setattr(turns, "TURN_QUEUE_MAX", 2)
    go, busy = threading.Event(), threading.Event()
    found: list[Happened] = []

    def slow(happened: Happened) -> None:
        busy.set()
        go.wait(30)
        found.append(happened)

    reporter = Reporter([slow])
    reporter.put(Happened("done", 0, key=0))
    assert busy.wait(30)
    for key in range(1, 6):
        reporter.put(Happened("done", 0, key=key))
    go.set()
    while len(found) < 3:
        pass
    reporter.put(Happened("done", 0, key=9))
    reporter.close()

    assert [(one.what, one.key, one.turn) for one in found] == [
        ("done", 0, 0), ("done", 1, 0), ("done", 2, 0), ("lost", 0, 3), ("done", 9, 0),
    ]  # fmt: skip


def test_action__runs_in_the_thread_in_its_turn() -> None:
    """Behind what was put before."""
    found: list[object] = []
    reporter = Reporter([found.append])
    reporter.put(Happened("done", 0))
    reporter.call(lambda: found.append(threading.current_thread().name))
    reporter.close()
    assert found[1:] == ["dpf-turns"]
