# SPDX-License-Identifier: Apache-2.0
"""The health of an instance: samples of its device in, a score and whether it keeps its table slots out.

It reads no sensor; the reckoning is `firmware_bridge/include/dpf/health.h`, the same in firmware.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from dpfedge import _core
from dpfedge.errors import UsageError

__all__ = ["COUNT_MOST", "PERIOD_MS", "STALE_MS", "Health", "MemoryPressure", "Rule", "Sample"]

PERIOD_MS = 50
"""How often a device is sampled: with the rule's hold time of 80 ms, one that fails is out after 150 ms at most."""
STALE_MS = 1000
"""Without a sample for so long, nothing good is known of an instance."""
COUNT_MOST = 1 << 31
"""Errors that one sample can tell of."""

_ONE = 10000
_UNKNOWN_MC = -1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at a device; counts are of what happened since the look before."""

    utilisation: float
    """0 to 1."""
    memory_free: float
    """0 to 1 of its memory."""
    temperature_c: float | None = None
    throttled: bool = False
    corrected_errors: int = 0
    """PCIe AER and ECC errors that hardware corrected."""
    fatal_errors: int = 0
    """Those that it could not correct, and XIDs: the instance is out at once."""

    def numbers(self) -> tuple[int, int, int, int, int, int]:
        """As the C core reckons; UsageError for a share that is none."""
        heat = _UNKNOWN_MC if self.temperature_c is None else _bounded("temperature_c", self.temperature_c, -273, 1000)
        return (
            _bounded("utilisation", self.utilisation, 0, 1, _ONE),
            _bounded("memory_free", self.memory_free, 0, 1, _ONE),
            heat,
            int(self.throttled),
            _bounded("corrected_errors", self.corrected_errors, 0, COUNT_MOST, 1),
            _bounded("fatal_errors", self.fatal_errors, 0, COUNT_MOST, 1),
        )


def _bounded(name: str, value: float, least: float, most: float, scale: int = 1000) -> int:
    if not least <= value <= most:
        raise UsageError("a sensor's value is out of range", where=name, found=value, allowed=f"{least}..{most}")
    return round(value * scale)


@dataclass(frozen=True, slots=True)
class Rule:
    """What counts as healthy; scores and factors are parts of 10000, times in ms, temperatures in 1/1000 °C."""

    down: int = _core.HEALTH_RULE[0]
    """Out below this score for `down_hold_ms`."""
    up: int = _core.HEALTH_RULE[1]
    """Back at this score or above for `up_hold_ms`."""
    down_hold_ms: int = _core.HEALTH_RULE[2]
    up_hold_ms: int = _core.HEALTH_RULE[3]
    throttled: int = _core.HEALTH_RULE[4]
    """The score's factor while throttled."""
    hot: int = _core.HEALTH_RULE[5]
    """The factor at `hot_mc` and above; 10000 up to `warm_mc`, in proportion between them."""
    warm_mc: int = _core.HEALTH_RULE[6]
    hot_mc: int = _core.HEALTH_RULE[7]
    corrected: int = _core.HEALTH_RULE[8]
    """What each corrected error takes off its factor of 10000 …"""
    corrected_least: int = _core.HEALTH_RULE[9]
    """… and what is left of it at least."""


class Health:
    """What is known of one instance; times are CLOCK_MONOTONIC in milliseconds."""

    def __init__(self, rule: Rule, now_ms: int, *, healthy: bool = True, load: bool = True) -> None:
        """UsageError when the rule makes no sense. Until the first sample it is taken for what `healthy` says.

        `load`: whether being busy and short of memory may take it out; the score tells of both in any case.
        """
        self._rule, self._load = astuple(rule), load
        self._state = (now_ms, _ONE if healthy else 0, int(healthy), 0)
        _core.health_score((0, 0, 0, 0, 0, 0), self._rule)  # refuses an impossible rule now, not at the first sample
        self.score = self._state[1]
        self._expected_ms: int | None = None

    @property
    def healthy(self) -> bool:
        """Whether it keeps its table slots."""
        return bool(self._state[2])

    def take(self, sample: Sample, now_ms: int) -> bool:
        """Judge one sample; whether `healthy` changed."""
        self._expected_ms = now_ms
        numbers = sample.numbers()
        self.score = judged = _core.health_score(numbers, self._rule)
        if not self._load:
            judged = _core.health_score((0, _ONE, *numbers[2:]), self._rule)
        return self._step(judged, now_ms, at_once=sample.fatal_errors > 0)

    @property
    def watched(self) -> bool:
        """Whether samples are expected."""
        return self._expected_ms is not None

    def watch(self, now_ms: int) -> None:
        """Expect samples from now on."""
        if self._expected_ms is None:
            self._expected_ms = now_ms

    def late(self, now_ms: int) -> bool:
        """Whether the last sample is too old."""
        return self._expected_ms is not None and now_ms - self._expected_ms >= STALE_MS

    def expire(self, now_ms: int) -> bool:
        """Out when the last sample is too old; whether `healthy` changed. One that nobody samples is left alone."""
        if not self.late(now_ms):
            return False
        self.score = 0
        return self._step(0, now_ms, at_once=True)

    def _step(self, score: int, now_ms: int, *, at_once: bool) -> bool:
        before = self.healthy
        self._state = _core.health_step(self._state, score, now_ms, at_once, self._rule)
        return self.healthy != before


class MemoryPressure:
    """Whether memory is low: under 15 % free, until 20 % are. Then new work that is not urgent goes last."""

    def __init__(self) -> None:
        self.low = False

    def take(self, memory_free: float) -> bool:
        """Judge the free share of memory, 0 to 1; whether it is low now."""
        self.low = _core.health_memory_low(_bounded("memory_free", memory_free, 0, 1, _ONE), self.low)
        return self.low

    def urgency(self, wanted: int) -> int:
        """What new work of that urgency (0 first, 3 usual, 7 last) gets: 7 for what is over 3 while memory is low."""
        if not 0 <= wanted <= 7:
            raise UsageError("number out of range", where="urgency", found=wanted, allowed="0..7")
        return _core.health_urgency(wanted, self.low)
