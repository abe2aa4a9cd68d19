# SPDX-License-Identifier: Apache-2.0
"""When which sample arrived: marks of (sample, CLOCK_MONOTONIC) in, the time of any recent sample out."""

from __future__ import annotations

from collections import deque

from dpfedge.stage.decoder.config import RATE

__all__ = ["Arrivals"]

_KEPT = 20 * RATE  # an utterance and a bit
_STEP = RATE // 100  # a sender of single samples may not fill the memory with marks
_LIVE_SLACK_MS = 500


class Arrivals:
    """Marks of one stream; samples are counted at 16 kHz from its start."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()
        self._first_ns = 0

    def mark(self, samples: int, captured_ns: int) -> None:
        """`samples` are here now; the last of them arrived at `captured_ns`."""
        self._first_ns = self._first_ns or captured_ns
        if self._marks and samples - self._marks[-1][0] < _STEP:
            self._marks.pop()
        self._marks.append((samples, captured_ns))
        while self._marks[0][0] < samples - _KEPT:
            self._marks.popleft()

    def at(self, sample: int) -> int:
        """When `sample` arrived; 0 when nothing has."""
        return next((at_ns for end, at_ns in self._marks if end >= sample), self._marks[-1][1] if self._marks else 0)

    def live(self) -> bool:
        """Whether samples come about as fast as they were spoken, so that showing them early is worth while."""
        if not self._marks:
            return False
        samples, at_ns = self._marks[-1]
        return samples * 1000 / RATE <= 1.5 * (at_ns - self._first_ns) / 1e6 + _LIVE_SLACK_MS
