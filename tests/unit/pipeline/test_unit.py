# SPDX-License-Identifier: Apache-2.0
"""Stages, the processes they live in, and when a dead one is tried again."""

from __future__ import annotations

import pytest
from made_supervisor import node

from dpfedge.pipeline import unit as module
from dpfedge.pipeline.unit import Deaths, StageState, Unit, Variant, units_of


class Clock:
    """A clock that stands until it is moved."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Time as `unit.py` sees it."""
    one = Clock()
    monkeypatch.setattr(module, "time", one)
    return one


def states(*names: str) -> dict[str, StageState]:
    return {name: StageState(node(name)) for name in names}


@pytest.mark.parametrize(
    ("shared", "found"),
    [
        ([], {"a": ["a"], "b": ["b"], "c": ["c"]}),
        (["b"], {"a": ["a"], "c": ["c"], "b": ["b"]}),
        (["c", "a"], {"b": ["b"], "a": ["a", "c"]}),
        (["a", "b", "c"], {"a": ["a", "b", "c"]}),
    ],
)
def test_units__are_one_for_all_that_share_and_one_for_each_other(
    shared: list[str], found: dict[str, list[str]]
) -> None:
    """Named after the first stage in them, which each stage knows."""
    stages = states("a", "b", "c")
    units = units_of(stages, shared)

    assert {name: list(unit.stages) for name, unit in units.items()} == found
    assert all(stages[name].unit == unit for unit, names in found.items() for name in names)


def test_unit__is_ready_and_has_served_when_every_stage_is(clock: Clock) -> None:
    """One is not enough."""
    stages = states("a", "b")
    unit = Unit("a", stages)
    stages["a"].state, stages["a"].served = "ready", True
    assert (unit.ready, unit.served) == (False, False)

    unit.set("ready")
    stages["b"].served = True
    assert (unit.ready, unit.served) == (True, True)


def test_begin__starts_what_is_wanted_now() -> None:
    """What is wanted later makes it outdated, if it is another model."""
    stages = states("a")
    unit = Unit("a", stages)
    stages["a"].error = {"what": "old"}
    stages["a"].wanted = Variant("small")
    unit.begin()
    assert (stages["a"].state, stages["a"].error, unit.serial, unit.outdated()) == ("starting", None, 1, False)

    stages["a"].wanted = Variant("small", {"rate": 5})
    assert not unit.outdated()
    stages["a"].wanted = Variant()
    assert unit.outdated()


def test_go_back__wants_what_was_ready_last() -> None:
    """Of the stages whose change was tried; a newer wish stays."""
    stages = states("a", "b", "c")
    unit = Unit("a", stages)
    stages["a"].wanted = stages["b"].wanted = Variant("small")
    unit.begin()
    stages["b"].wanted = Variant("smaller")

    assert unit.go_back() == ["a", "b"]
    assert [state.wanted.model for state in stages.values()] == [None, "smaller", None]


def test_deaths__make_pauses_longer_and_then_open_the_breaker(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """It closes when the first of them is long enough ago."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0, 0.1, 0.5, 2.0, 5.0))
    deaths, found = Deaths(), []
    assert deaths.pause_s() == (0.0, False)
    for _ in range(5):
        deaths.add()
        found.append(deaths.pause_s())
        clock.now += 1

    assert found == [(0.0, False), (0.1, False), (0.5, False), (2.0, False), (26.0, True)]
    clock.now += 27
    assert deaths.pause_s() == (0.1, False)  # two are left
    clock.now += 30
    assert deaths.pause_s() == (0.0, False)


def test_deaths__breaker_stays_open_longer_than_any_pause(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """However near its end the window is."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0, 5.0))
    deaths = Deaths()
    for _ in range(5):
        deaths.add()
    clock.now += 29

    assert deaths.pause_s() == (6.0, True)
