# SPDX-License-Identifier: Apache-2.0
"""Recorded requests over a toy engine: what they are given again, what is compared, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import numpy as np
import pytest
from made_runtime import CHAT, Car, Words, run

from dpfedge.errors import StageError
from dpfedge.runtime.recorded import Given, Outcome, RecordedRequest
from dpfedge.runtime.replay import Replayed, replay, unrepeatable
from dpfedge.stage.api import Kind, Mode

FACTS = {"audio": True, "temperature": 0.0, "seed": None}


async def _replay(car: Car, *requests: RecordedRequest, patience_s: float = 30, **facts: Any) -> list[Replayed]:
    runtimes = {0: {**FACTS, **facts}, 1: FACTS}
    return await replay(car.runtime, requests, runtimes, from_start=True, patience_s=patience_s)


def _start(mode: Mode, stage: str, **options: Any) -> Given:
    return Given(stage, Kind.START, payload=cbor2.dumps({"mode": int(mode), "route": [stage], **options}))


def _chat(text: str = "", **sampling: Any) -> RecordedRequest:
    options = {"sampling": sampling} if sampling else {}
    request = RecordedRequest(1, 0, 0, Mode.CHAT, [_start(Mode.CHAT, "llm", **options)], closed=True)
    request.turns[1], request.ended = Outcome(text=text, finish="stop"), 1
    return request


def _said() -> str:
    return "".join(data for kind, data, _ in CHAT if kind is Kind.TEXT)


def test_chat__that_gives_the_same_again() -> None:
    """The engine gets the very START of the recording, and its place back."""

    async def test() -> None:
        car = Car()
        car.engine.answers["llm"] = CHAT
        found = (await _replay(car, _chat(_said(), seed=3)))[0]

        assert (found.compared, found.differences, found.skipped) == ((1,), (), None)
        assert car.engine.sent == [("llm", Kind.START, {"mode": 2, "route": ["llm"], "sampling": {"seed": 3}})]
        assert car.nothing_open()

    run(test)


def test_chat__that_gives_something_else() -> None:
    """Both are shown."""

    async def test() -> None:
        car = Car()
        car.engine.answers["llm"] = CHAT
        request = _chat("Something else")
        request.turns[1].finish = "length"
        [found] = await _replay(car, request)
        assert found.differences == (
            f"turn 1: text was 'Something else', is {_said()!r}",
            "turn 1: it ended with length, now with stop",
        )

    run(test)


def test_unfinished_answer__must_be_the_beginning() -> None:
    """The server died in mid turn; what was said until then comes again."""

    async def test() -> None:
        for text, same in ((_said()[:1], True), ("x", False)):
            car = Car()
            car.engine.answers["llm"] = CHAT
            request = _chat(text)
            request.turns[1].finish, request.ended, request.closed = None, 0, False
            [found] = await _replay(car, request)
            assert (found.differences == ()) is same

    run(test)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda request: setattr(request, "problem", "stage llm died during it"), "stage llm died during it"),
        (lambda request: request.given.clear(), "it was never started"),
    ],
)
def test_request__that_cannot_be_repeated(change: Callable[[RecordedRequest], None], why: str) -> None:
    """It is not given to anybody."""

    async def test() -> None:
        car, request = Car(), _chat()
        change(request)
        assert [one.skipped for one in await _replay(car, request)] == [why]
        assert car.engine.sent == []

    run(test)


def test_sampled_answer__is_repeatable_with_a_seed_only() -> None:
    """Of the request or of the package."""
    warm = "its words were sampled (temperature 0.7) without a seed"
    assert unrepeatable(_chat(temperature=0.7), FACTS) == warm
    assert unrepeatable(_chat(), {**FACTS, "temperature": 0.7}) == warm
    assert unrepeatable(_chat(temperature=0.7, seed=1), FACTS) is None
    assert unrepeatable(_chat(), {**FACTS, "temperature": 0.7, "seed": 1}) is None
    assert unrepeatable(_chat(temperature=0.0), {**FACTS, "temperature": 0.7}) is None


def test_conversation__is_given_in_order_and_waits_for_ends() -> None:
    """Each message when every turn has ended that had ended before; an interrupted turn is not compared."""

    async def test() -> None:
        car = Car()
        sent: list[Any] = []

        def note(stage: str, key: int, kind: Kind, data: Any, turn: int) -> None:
            sent.append((stage, kind, data, turn))
            if kind is Kind.RESPOND:
                car.engine.say(key, "llm", Kind.TEXT, "Yes.", turn)
                car.engine.say(key, "llm", Kind.DONE, {"finish": "stop", "clauses": 0}, turn)

        car.engine.send_text = car.engine.send_map = note  # type: ignore[attr-defined]
        cancelled: list[int] = []
        car.engine.cancel_turns = lambda key, before: cancelled.append(before)  # type: ignore[method-assign]
        request = RecordedRequest(1, 0, 0, Mode.CONVERSE, [_start(Mode.CONVERSE, "llm")])
        request.given += [
            Given("llm", Kind.TEXT, 1, payload=b"Hello?"),
            Given("llm", Kind.RESPOND, 2, payload=cbor2.dumps({})),
            Given(progress=((2, 1),), cancel_before=3),
            Given("llm", Kind.HEARD, 2, payload=cbor2.dumps({"text": "Y"}), progress=((2, 1),)),
            Given("llm", Kind.RESPOND, 3, payload=cbor2.dumps({}), ended_before=1),
        ]
        request.turns = {2: Outcome(text="Ye", finish="cancelled"), 3: Outcome(text="No.", finish="stop")}
        request.ended, request.interrupted = 2, {2}
        [found] = await _replay(car, request)

        assert [one[1] for one in sent] == [Kind.TEXT, Kind.RESPOND, Kind.HEARD, Kind.RESPOND]
        assert cancelled == [3]
        assert (found.compared, found.skipped_turns) == ((3,), (2,))
        assert found.differences == ("turn 3: text was 'No.', is 'Yes.'",)
        assert car.nothing_open()

    run(test)


def test_silence__is_given_up() -> None:
    """A request that never answers is an error with its key, and its place is free."""

    async def test() -> None:
        car = Car()
        with pytest.raises(StageError, match="request 0000000000000001: nothing happened"):
            await _replay(car, _chat(), patience_s=0.01)
        assert car.nothing_open()

    run(test)


def _spoken(key: int, at_ns: int, said: str = "\x01\x02", runtime: int = 0) -> RecordedRequest:
    request = RecordedRequest(key, runtime, at_ns, Mode.SPEAK, [_start(Mode.SPEAK, "voice")], closed=True)
    request.turns[1], request.ended = Outcome(audio=bytearray(said, "latin-1"), finish="stop"), 1
    request.closed_ns = at_ns + 10
    return request


class Sound(Words):
    """Two bytes of sound."""

    def array(self) -> Any:
        return np.frombuffer(b"\x01\x02", np.int16)


def _singing() -> Car:
    car = Car()

    def start(stage: str, key: int, options: Any) -> None:
        car.engine.receivers[key].receive(stage, Sound(Kind.AUDIO, None, 1), 5, False)
        car.engine.say(key, stage, Kind.DONE, {"finish": "stop"}, 1)

    car.engine.send_start = start  # type: ignore[method-assign]
    return car


def test_sound__is_compared_while_the_voice_has_said_the_same() -> None:
    """Its noise goes on from clause to clause: after a difference nothing can be said of later ones."""

    async def test() -> None:
        found = await _replay(_singing(), _spoken(1, 0), _spoken(2, 100, "\x01\x03"), _spoken(3, 200, "x"))
        assert [(one.sound, one.differences) for one in found] == [
            (True, ()),
            (True, ("turn 1: audio was 1 samples, is 1: first different at sample 0",)),
            (False, ()),
        ]

    run(test)


@pytest.mark.parametrize(
    ("other", "noiseless", "sound"),
    [
        (_spoken(2, 100), False, True),
        (_spoken(2, 5), False, False),
        (_spoken(2, 100, runtime=1), False, True),
        (_spoken(2, 5), True, True),
    ],
)
def test_sound__of_requests_at_the_same_time_is_not_compared(
    other: RecordedRequest, noiseless: bool, sound: bool
) -> None:
    """Nobody knows whose clause was first; without noise it makes no difference."""

    async def test() -> None:
        first, _ = await _replay(_singing(), _spoken(1, 0, "\x01\x02"), other, noiseless=noiseless)
        assert first.sound is sound

    run(test)


def test_sound__needs_the_voice_from_its_start() -> None:
    """A recording that has forgotten its beginning, or another runtime of the server."""

    async def test() -> None:
        runtime = _singing().runtime
        [late] = await replay(runtime, [_spoken(1, 0, "x")], {0: FACTS}, from_start=False, patience_s=30)
        [switched] = await _replay(_singing(), _spoken(1, 0, "x", runtime=1))
        assert (late.sound, late.differences, switched.sound) == (False, (), False)

    run(test)
