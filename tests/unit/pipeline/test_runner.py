# SPDX-License-Identifier: Apache-2.0
"""The runner drives tiny stages over a real arena in this process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dpfedge.errors import Busy, InputError, LinkError
from dpfedge.pipeline.messages import send_text
from dpfedge.pipeline.runner import StageRunner
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode, RequestIO, Steps, Wait

OWNER = 1


def echo(io: RequestIO) -> Steps:
    """Send every text back, until the last."""
    while True:
        message = io.receive()
        if message is None:
            yield Wait.INPUT
            continue
        data, turn, last = dict(message.map()), message.turn, message.last
        message.release()
        yield from io.map("sink", Kind.DONE, data, turn=turn)
        if last:
            return


def _runner(rig: Any, toy: Any, life: Any, name: str = "llm") -> StageRunner:
    return StageRunner(toy(name, life), name, rig.wiring(name), rig.arena, OWNER)


def test_request__runs_to_its_end(rig: Any, toy: Any) -> None:
    """START, messages in order, answers in order, nothing held afterwards."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.start("llm", key)
    rig.send("source.llm", key, Kind.RESPOND, {"n": 1}, turn=1)
    rig.send("source.llm", key, Kind.RESPOND, {"n": 2}, turn=2, last=True)

    while not runner.turn_over():
        pass

    assert rig.got("llm.sink") == [(Kind.DONE, 1, {"n": 1}), (Kind.DONE, 2, {"n": 2})]
    assert rig.held() == {}
    assert runner.turn_over()


def test_requests__take_turns(rig: Any, toy: Any) -> None:
    """Nobody's steps wait for somebody else's end."""
    order: list[int] = []

    def busy(io: RequestIO) -> Steps:
        for _ in range(3):
            order.append(io.key)
            yield Wait.STEP

    runner = _runner(rig, toy, busy)
    keys = [rig.arena.requests.open() for _ in range(2)]
    for key in keys:
        rig.start("llm", key)
    while not runner.turn_over():
        pass

    assert order == keys * 3


def test_start__is_found_on_its_own_link_first(rig: Any, toy: Any) -> None:
    """A message of another link that overtakes START waits for nothing."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.send("encoder.llm", key, Kind.TEXT, {"n": 1})
    rig.start("llm", key)

    runner.turn_over()

    assert rig.got("llm.sink") == [(Kind.DONE, 0, {"n": 1})]


def test_message__before_start_waits_for_it(rig: Any, toy: Any) -> None:
    """After a restart a neighbour may send before the request is started here again."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.send("encoder.llm", key, Kind.TEXT, {"n": 1})
    runner.turn_over()
    assert rig.got("llm.sink") == []

    rig.start("llm", key)
    runner.turn_over()

    assert rig.got("llm.sink") == [(Kind.DONE, 0, {"n": 1})]
    assert rig.held() == {}


def test_message__before_start_of_a_closed_request_is_dropped(rig: Any, toy: Any) -> None:
    """It holds no slot."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.send("encoder.llm", key, Kind.TEXT)
    runner.turn_over()
    assert rig.held() == {"encoder.llm": 1}

    rig.arena.requests.close(key)
    runner.turn_over()

    assert rig.held() == {}


def test_source__message_without_start_is_dropped(rig: Any, toy: Any) -> None:
    """START comes on the same link: held slots would keep it out."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    for _ in range(3):
        rig.send("source.llm", key, Kind.RESPOND)
    rig.start("llm", key)
    runner.turn_over()

    assert rig.got("llm.sink") == []
    assert rig.held() == {}


def test_messages__around_a_late_start_keep_their_order(rig: Any, toy: Any) -> None:
    """What is dropped and what is kept does not change places."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.send("source.llm", key, Kind.RESPOND, {"n": 0})
    rig.start("llm", key)
    rig.send("source.llm", key, Kind.RESPOND, {"n": 1})
    rig.send("source.llm", key, Kind.RESPOND, {"n": 2})
    while not runner.turn_over():
        pass

    assert [data["n"] for _, _, data in rig.got("llm.sink")] == [1, 2]


def test_second_start__begins_anew_and_keeps_what_waits(rig: Any, toy: Any) -> None:
    """A session tells a restarted stage again; the stage may have found the first START, too."""
    begun: list[Any] = []

    def life(io: RequestIO) -> Steps:
        begun.append(io.options["n"])
        yield from echo(io)

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key, n=1)
    rig.send("source.llm", key, Kind.RESPOND, {"m": 1})
    rig.start("llm", key, n=2)
    while not runner.turn_over():
        pass

    assert begun == [2]
    assert rig.got("llm.sink") == [(Kind.DONE, 0, {"m": 1})]


def test_closed_request__is_dropped_with_its_leases(rig: Any, toy: Any) -> None:
    """The generator ends, its messages go back, and a later request of the same place hears nothing of it."""
    ended: list[int] = []

    def keeps(io: RequestIO) -> Steps:
        kept = []
        try:
            while True:
                kept.append(io.receive())
                yield Wait.INPUT
        finally:
            ended.append(io.key)

    runner, key = _runner(rig, toy, keeps), rig.arena.requests.open()
    rig.start("llm", key)
    for _ in range(3):
        rig.send("source.llm", key, Kind.RESPOND)
    runner.turn_over()
    assert rig.held() == {"source.llm": 3}

    rig.arena.requests.close(key)
    runner.turn_over()

    assert ended == [key]
    assert rig.held() == {}


def test_cancel__of_a_turn_wakes_who_waits(rig: Any, toy: Any) -> None:
    """INPUT means a message or a cancel; the generator sees each cancel once."""
    seen: list[bool] = []

    def life(io: RequestIO) -> Steps:
        while True:
            if (message := io.receive()) is not None:
                message.release()
            seen.append(io.cancelled(5))
            yield Wait.INPUT

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key)
    rig.send("source.llm", key, Kind.RESPOND, turn=5)
    while not runner.turn_over():
        pass
    rig.arena.requests.cancel(key, 6)
    assert runner.turn_over()
    assert runner.turn_over()

    assert seen == [False, True]


@pytest.mark.parametrize("error", [InputError("bad words"), Busy("full"), LinkError("odd")])
def test_failure__ends_the_request_only(rig: Any, toy: Any, error: Exception) -> None:
    """The stage serves the next one; the caller hears why."""

    def life(io: RequestIO) -> Steps:
        if io.options.get("bad"):
            raise error
        yield from echo(io)

    runner = _runner(rig, toy, life)
    bad, good = rig.arena.requests.open(), rig.arena.requests.open()
    rig.start("llm", bad, bad=True)
    rig.start("llm", good)
    rig.send("source.llm", good, Kind.RESPOND, {"n": 1}, last=True)
    while not runner.turn_over():
        pass

    (_, _, failed), (_, _, done) = rig.got("llm.sink")
    assert (failed["type"], failed["stage"]) == (type(error).__name__, "llm")
    assert done == {"n": 1}


def test_failure__before_the_first_step(rig: Any, toy: Any) -> None:
    """A stage that refuses when it is handed the request is no different."""

    def refuses(io: RequestIO) -> Steps:
        raise InputError("no history")

    runner, key = _runner(rig, toy, refuses), rig.arena.requests.open()
    rig.start("llm", key)
    runner.turn_over()

    assert [data["what"] for _, _, data in rig.got("llm.sink")] == ["no history"]


def test_failure__of_a_session_leaves_it_open(rig: Any, toy: Any) -> None:
    """The next turn works, and turns go on being numbered upwards."""
    begun: list[int] = []

    def life(io: RequestIO) -> Steps:
        begun.append(int(io.options.get("turn", 0)))
        while True:
            message = io.receive()
            if message is None:
                yield Wait.INPUT
                continue
            bad = message.map().get("bad")
            message.release()
            yield from io.map("sink", Kind.SPEECH_STARTED, {}, turn=2 * TURN_STRIDE)
            if bad:
                raise InputError("hiccup")

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key, Mode.CONVERSE)
    rig.send("source.llm", key, Kind.RESPOND, {"bad": 1})
    while not runner.turn_over():
        pass
    assert [(kind, turn) for kind, turn, _ in rig.got("llm.sink")] == [
        (Kind.SPEECH_STARTED, 2 * TURN_STRIDE),
        (Kind.FAILED, 2 * TURN_STRIDE),
    ]
    rig.send("source.llm", key, Kind.RESPOND)
    while not runner.turn_over():
        pass

    assert [kind for kind, _, _ in rig.got("llm.sink")] == [Kind.SPEECH_STARTED]
    assert begun == [0, 2 * TURN_STRIDE]


def test_failure__waits_for_room_on_the_sink(rig: Any, toy: Any) -> None:
    """A full link delays the bad news, it does not lose it."""

    def life(io: RequestIO) -> Steps:
        for _ in range(4):
            yield from io.map("sink", Kind.DONE, {}, turn=1)
        raise InputError("late")

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key)
    runner.turn_over()
    runner.turn_over()
    assert len(rig.got("llm.sink")) == 4

    runner.turn_over()
    assert [kind for kind, _, _ in rig.got("llm.sink")] == [Kind.FAILED]


def test_full_link__is_tried_again_when_its_reader_released(rig: Any, toy: Any) -> None:
    """The runner sleeps on its bell meanwhile; nobody polls."""

    def life(io: RequestIO) -> Steps:
        for number in range(9):
            yield from io.map("sink", Kind.DONE, {"n": number}, turn=1)

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    rig.start("llm", key)
    thread = threading.Thread(target=runner.run)
    thread.start()
    found: list[Any] = []
    bell = rig.arena.bell("sink")
    while len(found) < 9:
        seen = bell.value()
        got = rig.got("llm.sink")
        found += got
        if not got:
            bell.wait(seen, 10_000_000_000)
    runner.stop()
    thread.join(30)

    assert not thread.is_alive()
    assert [data["n"] for _, _, data in found] == list(range(9))


def test_stop__before_run(rig: Any, toy: Any) -> None:
    """SIGTERM may arrive before the first wait."""
    runner = _runner(rig, toy, echo)
    runner.stop()

    runner.run()


def test_request__opened_while_the_runner_sleeps(rig: Any, toy: Any) -> None:
    """Its bell wakes it, also for a close that no message goes with."""
    ended = threading.Event()

    def life(io: RequestIO) -> Steps:
        try:
            yield from echo(io)
        finally:
            ended.set()

    runner, key = _runner(rig, toy, life), rig.arena.requests.open()
    thread = threading.Thread(target=runner.run)
    thread.start()
    rig.start("llm", key)
    rig.send("source.llm", key, Kind.RESPOND, {"n": 1})
    bell = rig.arena.bell("sink")
    while not (found := rig.got("llm.sink")):
        bell.wait(bell.value(), 1_000_000)
    rig.arena.requests.close(key)
    rig.arena.requests.cancel(key)

    assert ended.wait(30)
    assert found == [(Kind.DONE, 0, {"n": 1})]
    runner.stop()
    thread.join(30)


def test_payload__of_the_wrong_shape_fails_its_request(rig: Any, toy: Any) -> None:
    """A neighbour's broken message is a failure of the request that was waiting for it."""
    runner, key = _runner(rig, toy, echo), rig.arena.requests.open()
    rig.start("llm", key)
    send_text(rig.producer("source.llm"), key, Kind.RESPOND, "nonsense")
    while not runner.turn_over():
        pass

    assert [data["type"] for _, _, data in rig.got("llm.sink")] == ["LinkError"]


def test_settle__waits_for_requests_and_ends(rig: Any, settling: Any) -> None:
    """A stage prepares in the pauses: not while a request can go on, and no longer than it needs."""
    stage = settling("llm", echo)
    runner = StageRunner(stage, "llm", rig.wiring("llm"), rig.arena, OWNER)
    thread = threading.Thread(target=runner.run)
    thread.start()
    key = rig.arena.requests.open()
    rig.start("llm", key)
    rig.send("source.llm", key, Kind.RESPOND, {"n": 1}, turn=1, last=True)
    while not (found := rig.got("llm.sink")):
        rig.arena.bell("sink").wait(rig.arena.bell("sink").value(), 10_000_000)
    while stage.steps < 3:
        pass
    runner.stop()
    thread.join(timeout=10)

    assert found == [(Kind.DONE, 1, {"n": 1})]
    assert stage.steps == 3
