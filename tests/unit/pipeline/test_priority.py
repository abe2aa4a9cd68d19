# SPDX-License-Identifier: Apache-2.0
"""Priorities of one thread: what is taken, what is refused, and what keeps it from taking everything."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.pipeline import priority


def in_thread(work: Callable[[], Any]) -> Any:
    """What `work` returns on a thread of its own: its priority ends with it."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What would be set as limits; those of this process stay."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: asked.append(pair))
    return asked


def test_nice__is_of_the_calling_thread() -> None:
    """More than it was; other threads keep theirs."""
    before = os.nice(0)

    assert in_thread(lambda: (priority.be_nice(3), os.nice(0))) == (None, before + 3)
    assert os.nice(0) == before


def test_nice__that_is_refused_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it is instead."""

    def refuse(value: int) -> int:
        if value:
            raise PermissionError
        return 4

    monkeypatch.setattr(os, "nice", refuse)
    assert priority.be_nice(-5) == "nice -5 needs CAP_SYS_NICE or RLIMIT_NICE; it stays at 4"


def test_fifo__asks_for_no_more_than_this_thread(
    monkeypatch: pytest.MonkeyPatch, limits: list[tuple[int, int]]
) -> None:
    """What it makes starts without; the limit of computing is there first."""
    asked: list[tuple[Any, ...]] = []

    def note(pid: int, policy: int, param: Any) -> None:
        assert limits
        asked.append((pid, policy, param.sched_priority))

    monkeypatch.setattr(os, "sched_setscheduler", note)
    assert priority.be_fifo(50) is None
    assert asked == [(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, 50)]


@pytest.mark.parametrize(
    ("hard", "found"),
    [(resource.RLIM_INFINITY, (1_000_000, 3_000_000)), (2_000_000, (1_000_000, 2_000_000)), (200, (200, 200))],
)
def test_fifo__keeps_a_limit_that_is_lower(
    monkeypatch: pytest.MonkeyPatch, limits: list[tuple[int, int]], hard: int, found: tuple[int, int]
) -> None:
    """Microseconds of computing without a pause: given up, killed."""
    monkeypatch.setattr(os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (hard, hard))
    priority.be_fifo(1)

    assert limits == [found]


def test_fifo__that_is_refused_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never silently."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert priority.be_fifo(9) == "fifo 9 needs CAP_SYS_NICE or RLIMIT_RTPRIO; it runs at an ordinary priority"


def test_give_up__takes_the_priority_of_every_real_time_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no other one, and tells which; a thread that has just ended is passed over."""
    policies = {11: os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, 12: os.SCHED_OTHER, 13: None, 14: os.SCHED_FIFO}
    asked: list[tuple[int, int]] = []
    told: list[int] = []

    def policy(task: int) -> int:
        found = policies[task]
        if found is None:
            raise ProcessLookupError
        return found

    before = signal.getsignal(signal.SIGXCPU)
    priority.give_up_fifo(told.append)
    try:
        monkeypatch.setattr(os, "listdir", lambda path: [str(task) for task in policies])
        monkeypatch.setattr(os, "sched_getscheduler", policy)
        monkeypatch.setattr(os, "sched_setscheduler", lambda task, kind, param: asked.append((task, kind)))
        signal.raise_signal(signal.SIGXCPU)
    finally:
        signal.signal(signal.SIGXCPU, before)

    assert told == [11, 14]
    assert asked == [(task, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK) for task in told]
