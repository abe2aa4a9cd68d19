# SPDX-License-Identifier: Apache-2.0
"""Figures of processes that live, end and are gone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.pipeline.processes import cpu_seconds, memory_of


def test_memory__of_this_process() -> None:
    """Shared pages count in part only."""
    found = memory_of(os.getpid())

    assert 0 < found["private_dirty_bytes"] <= found["pss_bytes"] <= found["rss_bytes"]


def test_memory__of_nobody() -> None:
    """No process has pid 0."""
    assert memory_of(0) == {}


def test_memory__of_a_zombie() -> None:
    """It ended and was not waited for."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert memory_of(pid) == {}
    os.waitpid(pid, 0)
    assert memory_of(pid) == {}


def test_memory__of_a_process_that_is_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel answers with nothing at all."""
    monkeypatch.setattr(Path, "read_text", lambda self: "")
    assert memory_of(1) == {}


def test_cpu_seconds__rise_with_work() -> None:
    """User and system time."""
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) == before:
        sum(range(10_000))
    assert cpu_seconds(os.getpid()) > before
