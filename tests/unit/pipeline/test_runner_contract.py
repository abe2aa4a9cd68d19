# SPDX-License-Identifier: Apache-2.0
"""Stages that break their contract, and messages that nobody waits for any more."""

from __future__ import annotations

from typing import Any

import pytest

from dpfedge.pipeline.runner import StageRunner
from dpfedge.stage.api import Kind, Mode, RequestIO, Steps, Wait


def _runner(rig: Any, toy: Any, life: Any) -> StageRunner:
    return StageRunner(toy("llm", life), "llm", rig.wiring("llm"), rig.arena, 1)


def test_message__behind_the_end_of_a_request_holds_no_slot(rig: Any, toy: Any) -> None:
    """A link that leads back may bring more than the stage waited for, while the request goes on elsewhere."""

    def once(io: RequestIO) -> Steps:
        yield from io.map("sink", Kind.DONE, {}, turn=0)

    runner, key = _runner(rig, toy, once), rig.arena.requests.open()
    rig.start("llm", key, mode=int(Mode.RUN))
    runner.turn_over()
    rig.send("encoder.llm", key, Kind.DATA)
    runner.turn_over()

    assert rig.arena.requests.live(key)
    assert "encoder.llm" not in rig.held()


@pytest.mark.parametrize(
    ("given", "words"),
    [([], "ended the request without saying that it is done"), ([None], "does not say why it waits")],
)
def test_generator__that_breaks_the_contract(rig: Any, toy: Any, given: list[Any], words: str) -> None:
    """Its request fails by name instead of waiting for ever."""

    def life(io: RequestIO) -> Steps:
        yield from given

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key, mode=int(Mode.RUN))
    runner.turn_over()
    ((kind, _, data),) = rig.got("llm.sink")
    assert kind is Kind.FAILED
    assert words in data["what"]
    assert (data["stage"], data["type"]) == ("llm", "StageError")


def test_failure__of_a_drawn_graph_names_the_stage(rig: Any, toy: Any) -> None:
    """Also where the error itself names a port only."""

    def life(io: RequestIO) -> Steps:
        yield from io.text("clause", Kind.DATA, "x", turn=0)

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key, mode=int(Mode.RUN))
    runner.turn_over()
    ((_, _, data),) = rig.got("llm.sink")
    assert data["where"] == "stage llm, port clause"


def test_urgent__works_while_others_wait_but_nobody_starves(rig: Any, toy: Any) -> None:
    """Between two steps of the most urgent no other one is done, but for one in sixteen; equals take turns."""
    order: list[int] = []

    def busy(io: RequestIO) -> Steps:
        for _ in range(32):
            order.append(io.urgency)
            yield Wait.STEP
        yield from io.map("sink", Kind.DONE, {}, turn=0)

    runner = _runner(rig, toy, busy)
    for urgency in (7, 3, 3):
        rig.start("llm", rig.arena.requests.open(), mode=int(Mode.RUN), urgency=urgency)
    while not runner.turn_over():
        pass

    assert order[:14] == [3] * 14
    assert 1 <= order[:60].count(7) <= 3
    assert order.count(7) == 32


def test_urgent__does_not_keep_a_deadline_from_being_told(rig: Any, toy: Any) -> None:
    """What ends takes no time from anybody."""

    def busy(io: RequestIO) -> Steps:
        while True:
            yield Wait.STEP

    runner = _runner(rig, toy, busy)
    rig.start("llm", rig.arena.requests.open(), mode=int(Mode.RUN), urgency=0)
    late = rig.arena.requests.open()
    rig.start("llm", late, mode=int(Mode.RUN), urgency=7, deadline_ns=1)
    runner.turn_over()
    ((kind, _, data),) = rig.got("llm.sink")
    assert (kind, data["type"]) == (Kind.FAILED, "DeadlineExceeded")
