# SPDX-License-Identifier: Apache-2.0
"""Recorded requests over a toy engine: what they are given again, what is compared, and what is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
import pytest
from made_runtime import CHAT, Car, run

from dpfedge.errors import StageError
from dpfedge.runtime.recorded import Given, Outcome, RecordedRequest
from dpfedge.runtime.replay import replay, unrepeatable
from dpfedge.stage.api import Kind, Mode

FACTS = {"audio": True, "temperature": 0.0, "seed": None}


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
        found = await replay(car.runtime, _chat(_said(), seed=3), FACTS)

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
        found = await replay(car.runtime, request, FACTS)
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
            found = await replay(car.runtime, request, FACTS)
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
        assert (await replay(car.runtime, request, FACTS)).skipped == why
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
            Given(ended_before=1, cancel_before=3),
            Given("llm", Kind.HEARD, 2, payload=cbor2.dumps({"text": "Y"}), ended_before=1),
            Given("llm", Kind.RESPOND, 3, payload=cbor2.dumps({}), ended_before=1),
        ]
        request.turns = {2: Outcome(text="Ye", finish="cancelled"), 3: Outcome(text="No.", finish="stop")}
        request.ended, request.interrupted = 2, {2}
        found = await replay(car.runtime, request, FACTS)

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
            await replay(car.runtime, _chat(), FACTS, patience_s=0.01)
        assert car.nothing_open()

    run(test)
