# SPDX-License-Identifier: Apache-2.0
"""Times, lower rates and sizes of frames."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from dpfedge.stage.camera.timing import Clock, Thinner, fit

MS = 1_000_000
BASE = Fraction(1, 1000)


def test_clock__file() -> None:
    """The first frame is shown at the start, later ones by their own times, whatever the first one's is."""
    clock = Clock(7 * MS, live=False, rate=None)

    assert [clock.at(pts, BASE) for pts in (500, 540, 700)] == [7 * MS, 47 * MS, 207 * MS]


def test_clock__times_that_are_missing_or_run_backwards() -> None:
    """A frame without a time follows the last one; none is earlier than another."""
    clock = Clock(0, live=False, rate=Fraction(50))

    assert [clock.at(pts, BASE) for pts in (0, None, None)] == [0, 20 * MS, 40 * MS]
    assert clock.at(10, BASE) == 40 * MS + 1
    assert clock.at(90, None) == 60 * MS + 1


def test_clock__again() -> None:
    """A file that begins anew goes on where it ended."""
    clock = Clock(0, live=False, rate=Fraction(10))
    clock.at(0, BASE)
    clock.at(100, BASE)
    clock.again()

    assert [clock.at(pts, BASE) for pts in (0, 100)] == [200 * MS, 300 * MS]


def test_clock__camera() -> None:
    """The driver's time stamp counts when it is of the monotonic clock; else now does."""
    now = time.monotonic_ns()
    monotonic, wall = Clock(now, live=True, rate=None), Clock(now, live=True, rate=None)

    assert monotonic.at((now + 5 * MS) // 1000, Fraction(1, 1_000_000)) == (now + 5 * MS) // 1000 * 1000
    assert now <= wall.at(time.time_ns() // 1000, Fraction(1, 1_000_000)) <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("rate", "kept"),
    [(None, 30), (30, 30), (15, 15), (20, 20), (10, 10), (1, 1), (60, 30)],
)
def test_thinner__keeps_the_rate(rate: float | None, kept: int) -> None:
    """Of a second of 30 frames, whose times are rounded to milliseconds, the wanted number stays."""
    thinner = Thinner()

    assert sum(thinner.keeps(round(number * 1000 / 30) * MS, rate) for number in range(30)) == kept


def test_thinner__after_a_pause_and_with_another_rate() -> None:
    """A pause is not made up for; a new rate counts from the next frame on."""
    thinner = Thinner()

    assert [thinner.keeps(at * MS, 10) for at in (0, 5000, 5050, 5100)] == [True, True, False, True]
    assert [thinner.keeps(at * MS, 1) for at in (5150, 5200, 5300, 7000)] == [False, True, False, True]
    assert [thinner.keeps(at * MS, 100) for at in (7010, 7020)] == [True, True]


@pytest.mark.parametrize(
    ("size", "most", "multiple", "expected"),
    [
        ((640, 480), (1920, 1080), 1, (640, 480)),
        ((1920, 1080), (640, 480), 1, (640, 360)),
        ((1920, 1080), (640, 480), 32, (640, 352)),
        ((1080, 1920), (1920, 1080), 1, (608, 1080)),
        ((33, 47), (100, 100), 1, (33, 47)),
        ((3, 5), (100, 100), 32, (32, 32)),
        ((8192, 2), (100, 100), 1, (100, 1)),
        ((100, 100), (100, 90), 32, (96, 64)),
    ],
)
def test_fit__sizes(size: tuple[int, int], most: tuple[int, int], multiple: int, expected: tuple[int, int]) -> None:
    """Within bounds and multiples, never enlarged but to one multiple."""
    assert fit(size, most, multiple) == expected
