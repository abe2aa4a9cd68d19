# SPDX-License-Identifier: Apache-2.0
"""A stage that hangs inside one step: watched from a thread of the same process. It ends nothing itself.

It sees any step that lets other threads run: libraries do while they compute, and Python does between two instructions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["Stepping", "watch"]


class Stepping(Protocol):
    """What is watched."""

    step_since_ns: int
    """When the step in progress began (CLOCK_MONOTONIC); 0 between steps."""


def watch(runner: Stepping, hang_ns: int, hung: Callable[[int], object]) -> None:
    """Return when a step lasted longer than `hang_ns`, after `hung(nanoseconds)` was called; else never."""
    while True:
        time.sleep(min(hang_ns / 4e9, 1.0))
        since = runner.step_since_ns
        if since and (step_ns := time.monotonic_ns() - since) > hang_ns:
            hung(step_ns)
            return
