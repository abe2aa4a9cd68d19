# SPDX-License-Identifier: Apache-2.0
"""When frames were taken, which of them a lower rate keeps, and how large they become; it decodes nothing."""

from __future__ import annotations

import time
from fractions import Fraction

__all__ = ["Clock", "Thinner", "fit"]

_SECOND = 1_000_000_000
_GUESS = Fraction(1, 25)  # of a second, between frames of a file that says nothing of its times
_SLACK_NS = 1_000_000  # containers round times to a millisecond
_RECENT_NS = 10 * _SECOND  # a driver's own time stamp is this near to now, or it is of another clock


class Clock:
    """Times of one source's frames on CLOCK_MONOTONIC; they never run backwards."""

    def __init__(self, start_ns: int, *, live: bool, rate: Fraction | None) -> None:
        """`start_ns`: when the first frame of a file is shown; `rate`: frames per second where times are missing."""
        self._live, self._step = live, int(_SECOND / rate) if rate else int(_SECOND * _GUESS)
        self._start, self._first, self._last = start_ns, None, start_ns - 1

    _first: Fraction | None

    def at(self, pts: int | None, time_base: Fraction | None) -> int:
        """When the frame with this presentation time was taken, or is to be shown."""
        told = None if pts is None or not time_base else pts * time_base
        found = self._of_camera(told) if self._live else self._of_file(told)
        self._last = max(found, self._last + 1)
        return self._last

    def again(self) -> None:
        """The file starts anew: its first frame follows the last one."""
        self._start, self._first = self._last + self._step, None

    def _of_camera(self, told: Fraction | None) -> int:
        now = time.monotonic_ns()
        stamp = now if told is None else int(told * _SECOND)
        return stamp if abs(now - stamp) < _RECENT_NS else now

    def _of_file(self, told: Fraction | None) -> int:
        if told is None:
            return max(self._start, self._last + self._step)
        self._first = told if self._first is None else self._first
        return self._start + int((told - self._first) * _SECOND)


class Thinner:
    """Keeps at most so many frames per second, evenly, by their times."""

    def __init__(self) -> None:
        self._due: int | None = None
        self._kept = 0

    def keeps(self, at_ns: int, rate: float | None) -> bool:
        """Whether the frame of this time stays; `rate` may differ from call to call."""
        if rate is None:
            self._due = None
            return True
        period = int(_SECOND / rate)
        due = at_ns if self._due is None else min(self._due, self._kept + period)
        if at_ns < due - min(_SLACK_NS, period // 4):
            return False
        self._kept, self._due = at_ns, due + period if at_ns < due + period else at_ns + period
        return True


def fit(size: tuple[int, int], most: tuple[int, int], multiple: int) -> tuple[int, int]:
    """(width, height) for a frame of `size`: within `most`, its proportions, both multiples; never enlarged for it.

    A frame smaller than `multiple` becomes that large.
    """
    shrink = min(1.0, most[0] / size[0], most[1] / size[1])
    sides = (round(side * shrink / multiple) * multiple for side in size)
    width, height = (
        min(max(side, multiple), top // multiple * multiple) for side, top in zip(sides, most, strict=True)
    )
    return width, height
