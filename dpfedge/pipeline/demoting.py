# SPDX-License-Identifier: Apache-2.0
"""New work that is not urgent goes last while memory is low: the urgency wanted in, the one it gets out (LADDER.md).

It reads no sensor and refuses nothing: work that is demoted waits for the rest, and is done. What is open already stays
as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpfedge.routing.health import MemoryPressure

__all__ = ["USUAL", "Demoting"]

USUAL = 3
"""The urgency of work that says nothing; only what is less urgent (a higher number) can be demoted."""


class Demoting:
    """Whether memory is low, and how much work was demoted for it."""

    def __init__(self, memory_free: Callable[[], float | None]) -> None:
        """`memory_free`: the free share, 0 to 1, None when nobody knows; asked only for work that is not urgent."""
        self._memory_free, self._memory = memory_free, MemoryPressure()
        self.demoted = 0

    def urgency(self, wanted: int) -> int:
        """What new work of that urgency (0 first to 7 last) gets; from one thread."""
        if wanted <= USUAL:
            return wanted
        self._look()
        got = self._memory.urgency(wanted)
        self.demoted += got != wanted
        return got

    def figures(self) -> dict[str, Any]:
        """Whether memory is low (under 15 % free, until 20 % are), and how many requests were demoted."""
        return {"low": self._look(), "demoted": self.demoted}

    def _look(self) -> bool:
        free = self._memory_free()
        return self._memory.low if free is None else self._memory.take(free)
