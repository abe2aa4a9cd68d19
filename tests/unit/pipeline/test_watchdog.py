# SPDX-License-Identifier: Apache-2.0
"""A step that lasts too long is seen from another thread."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

from dpfedge.pipeline.watchdog import watch


def test_watch__a_step_that_hangs() -> None:
    """Called once, with how long it has taken."""
    found: list[int] = []

    watch(SimpleNamespace(step_since_ns=time.monotonic_ns()), 20_000_000, found.append)

    [took] = found
    assert took > 20_000_000


def test_watch__short_steps_and_none() -> None:
    """However many there are."""
    runner, found = SimpleNamespace(step_since_ns=0), list[int]()
    thread = threading.Thread(target=watch, args=(runner, 2_000_000_000, found.append), daemon=True)
    thread.start()
    for _ in range(5):
        runner.step_since_ns = time.monotonic_ns()
        time.sleep(0.02)
        runner.step_since_ns = 0

    assert found == []
    assert thread.is_alive()
