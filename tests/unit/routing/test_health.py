# SPDX-License-Identifier: Apache-2.0
"""Health: the formula, its penalties, hysteresis and hold times, and what low memory does to new work."""

from __future__ import annotations

import pytest

from dpfedge.errors import UsageError
from dpfedge.routing.health import STALE_MS, Health, MemoryPressure, Rule, Sample

GOOD, BAD = Sample(0.1, 0.9), Sample(1.0, 0.01)


@pytest.mark.parametrize(
    ("sample", "score"),
    [
        (Sample(0, 1), 10000),
        (Sample(0.5, 0.25), 4000),
        (Sample(1, 0), 0),
        (Sample(0, 1, throttled=True), 5000),
        (Sample(0, 1, temperature_c=85), 10000),
        (Sample(0, 1, temperature_c=95), 6250),
        (Sample(0, 1, temperature_c=130), 2500),
        (Sample(0, 1, corrected_errors=3), 8500),
        (Sample(0, 1, corrected_errors=10**6), 2500),
        (Sample(0, 1, fatal_errors=1), 0),
        (Sample(0.5, 0.25, 95, True, 3), 1062),
    ],
)
def test_score__as_specified(sample: Sample, score: int) -> None:
    """0.6 of what is idle and 0.4 of free memory, times each penalty, rounded down at each step."""
    health = Health(Rule(), 0)
    health.take(sample, 0)
    assert health.score == score


def test_health__goes_out_after_the_hold_time() -> None:
    """Not before, and not for one bad sample between good ones."""
    health = Health(Rule(), 0)
    assert not health.take(BAD, 0)
    assert not health.take(GOOD, 50)
    assert not health.take(BAD, 100)
    assert not health.take(BAD, 179)
    assert health.healthy
    assert health.take(BAD, 180)
    assert not health.healthy


def test_health__comes_back_above_the_upper_threshold() -> None:
    """Between the two thresholds nothing changes, either way."""
    between = Sample(1.0, 0.2)
    health = Health(Rule(), 0)
    health.take(between, 0)
    health.take(between, 10_000)
    assert health.healthy
    assert health.take(Sample(0, 1, fatal_errors=1), 10_001)
    health.take(between, 10_002)
    health.take(between, 60_000)
    assert not health.healthy
    health.take(GOOD, 60_100)
    assert not health.take(GOOD, 65_099)
    assert health.take(GOOD, 65_100)


def test_health__where_load_does_not_count() -> None:
    """Busy and short of memory it stays, and the score says so; what is wrong with it takes it out as ever."""
    health = Health(Rule(), 0, load=False)
    for now in range(50, 500, 50):
        assert not health.take(Sample(1.0, 0.0), now)
    assert (health.healthy, health.score) == (True, 0)
    broken = Sample(0.0, 1.0, 110.0, throttled=True, corrected_errors=20)
    assert [health.take(broken, now) for now in (500, 550, 600)] == [False, False, True]


def test_health__without_samples() -> None:
    """One that stops being sampled goes out; one that never was is left alone."""
    health = Health(Rule(), 0)
    assert not health.expire(10**9)
    watched = Health(Rule(), 0)
    watched.watch(500)
    watched.watch(900)
    assert not watched.expire(500 + STALE_MS - 1)
    assert watched.expire(500 + STALE_MS)
    health.take(GOOD, 1000)
    assert not health.expire(1000 + STALE_MS - 1)
    assert health.expire(1000 + STALE_MS)
    assert not health.healthy
    assert not health.expire(1000 + STALE_MS + 1)


def test_health__a_clock_at_its_beginning() -> None:
    """Time 0 is a time."""
    health = Health(Rule(down_hold_ms=0), 0, healthy=False)
    assert (health.healthy, health.score) == (False, 0)
    health.take(GOOD, 0)
    assert health.take(GOOD, 5000)
    assert health.take(BAD, 5000)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(-0.1, 1), Sample(1.1, 1), Sample(0, 2), Sample(float("nan"), 1), Sample(0, 1, float("nan")),
        Sample(0, 1, 5000), Sample(0, 1, corrected_errors=-1),
    ],
)  # fmt: skip
def test_sample__refuses_what_no_sensor_tells(sample: Sample) -> None:
    """By name."""
    with pytest.raises(UsageError, match="a sensor's value is out of range"):
        Health(Rule(), 0).take(sample, 0)


@pytest.mark.parametrize("rule", [Rule(down=1000), Rule(up=20000), Rule(hot=10001), Rule(warm_mc=105_000)])
def test_rule__refuses_nonsense(rule: Rule) -> None:
    """Before the first sample."""
    with pytest.raises(UsageError, match="make no sense"):
        Health(rule, 0)


def test_memory_pressure__demotes_what_is_not_urgent() -> None:
    """Below 15 % free, until 20 % are; nothing is refused."""
    pressure = MemoryPressure()
    assert not pressure.take(0.15)
    assert [pressure.urgency(n) for n in range(8)] == list(range(8))
    assert pressure.take(0.149)
    assert [pressure.urgency(n) for n in range(8)] == [0, 1, 2, 3, 7, 7, 7, 7]
    assert pressure.take(0.199)
    assert not pressure.take(0.2)
    with pytest.raises(UsageError, match="urgency"):
        pressure.urgency(8)
