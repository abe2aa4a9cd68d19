# SPDX-License-Identifier: Apache-2.0
"""A request's deadline on its owner's side: it passes even when the stage that should say so hangs or is dead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dpfedge.errors import DeadlineExceeded

__all__ = ["GRACE_S", "Deadline"]

GRACE_S = 0.1
"""How much later than the deadline the owner gives up: stages say it themselves before, and know more."""


class Deadline:
    """Calls `fail` with DeadlineExceeded when `seconds` and a grace have passed; never for None. Use it on the loop."""

    def __init__(self, seconds: float | None, fail: Callable[[DeadlineExceeded], object]) -> None:
        self.at_ns = 0 if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
        """CLOCK_MONOTONIC; 0 for never."""
        self._fail = fail
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds + GRACE_S, self._pass)

    def _pass(self) -> None:
        late = (time.monotonic_ns() - self.at_ns) / 1e6
        found, remedy = f"{late:.0f} ms late, and no word from a stage", "allow more time, or ask for less"
        self._fail(DeadlineExceeded("the deadline has passed", found=found, remedy=remedy))

    def stop(self) -> None:
        """It is met."""
        if self._timer is not None:
            self._timer.cancel()
