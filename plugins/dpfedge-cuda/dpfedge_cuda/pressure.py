# SPDX-License-Identifier: Apache-2.0
"""Work that waits while device memory is low: the free share in; admitted, or a named error, out.

Urgent work is never kept waiting. It frees nothing itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dpfedge.errors import BackendError

__all__ = ["Pressure"]

_LOW, _ENOUGH = 0.15, 0.20
_LOOK_S = 0.1
_WAIT_S = 10.0


class Pressure:
    """One device's: low under 15 % free, until 20 % are, as routing judges it."""

    def __init__(self, free_share: Callable[[], float], wait_s: float = _WAIT_S, look_s: float = _LOOK_S) -> None:
        self._free_share, self._wait_s, self._look_s = free_share, wait_s, look_s
        self._lock = threading.Lock()
        self._low, self._share, self._at = False, 1.0, float("-inf")

    def low(self) -> bool:
        """Whether memory is low; asks the device at most every tenth of a second."""
        with self._lock:
            if time.monotonic() - self._at >= self._look_s:
                self._share, self._at = self._free_share(), time.monotonic()
                self._low = self._share < (_ENOUGH if self._low else _LOW)
            return self._low

    def admit(self, stopped: Callable[[], bool]) -> None:
        """Return once memory suffices or `stopped()`; BackendError when it does not in ten seconds."""
        until = time.monotonic() + self._wait_s
        while self.low() and not stopped():
            if time.monotonic() >= until:
                raise BackendError(
                    f"device memory stays low, and work that is not urgent waited {self._wait_s:g} s",
                    where="backend cuda",
                    found=f"{self._share:.0%} free",
                    allowed=f"{_LOW:.0%} or more to begin",
                    remedy="unload a model, place a stage elsewhere, or give the request an urgency of 3 or less",
                )
            time.sleep(self._look_s / 2)
