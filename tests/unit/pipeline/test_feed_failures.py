# SPDX-License-Identifier: Apache-2.0
"""Failures and deaths of stages end what they touched, and nothing else."""

from __future__ import annotations

import pytest
from made_feed import ALL, DIED, ONE, TWO, Script, kinds, run

from dpfedge.errors import InputError, StageDied
from dpfedge.pipeline.events import (
    Failed,
    SpeechStarted,
    TurnDone,
)
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.failure import describe


def test_failure__is_raised_where_there_is_one_answer() -> None:
    """As the class it was in the stage."""

    async def test() -> None:
        script = Script(Mode.CHAT, ("llm",))
        script.say("llm", Kind.FAILED, 1, describe(InputError("bad"), "llm"))
        with pytest.raises(InputError, match="bad"):
            await script.events(1)

    run(test)


def test_failure__of_a_turn_lets_the_session_go_on() -> None:
    """Its late messages are not the next turn's."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.endpoint(ONE)
        script.words(ONE)
        script.say("llm", Kind.FAILED, ONE, describe(InputError("bad"), "llm"))
        script.say("llm", Kind.TEXT, ONE, "late")
        script.say("voice", Kind.AUDIO, ONE)
        script.speech(TWO)

        assert kinds(await script.events())[-2:] == [(Failed, ONE), (SpeechStarted, TWO)]
        assert [message.released for message in script.messages] == [1] * len(script.messages)

    run(test)


def test_failure__of_the_decoder_ends_a_session_of_one_file() -> None:
    """There is nothing more to read."""

    async def test() -> None:
        script = Script(Mode.CONVERSE, one_file=True)
        script.speech(ONE)
        script.say("decoder", Kind.FAILED, 0, describe(InputError("no audio file"), "decoder"))

        assert kinds(await script.events(2)) == [(SpeechStarted, ONE), (Failed, ONE)]
        assert await script.ended()

    run(test)


@pytest.mark.parametrize(
    ("stage", "lost"),
    [("decoder", [TWO]), ("encoder", []), ("llm", [ONE]), ("voice", [ONE])],
)
def test_death__while_one_turn_is_answered_and_one_is_heard(stage: str, lost: list[int]) -> None:
    """Only turns the stage had a part of are lost; speech that goes on reaches the stage's next process."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.endpoint(ONE)
        script.words(ONE)
        script.speech(TWO)
        await script.events()

        assert script.feed.stage_died(stage, DIED) == max(lost, default=0)
        assert kinds(await script.events()) == [(Failed, turn) for turn in lost]

    run(test)


@pytest.mark.parametrize(("stage", "lost"), [("decoder", True), ("encoder", True), ("llm", True), ("voice", False)])
def test_death__between_endpoint_and_words(stage: str, lost: bool) -> None:
    """The utterance may have been in any of the three; the voice has not heard of it."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.say("decoder", Kind.SPEECH_STOPPED, ONE, {"at_ms": 90, "start_ms": 10, "reason": "silence"})
        await script.events()

        assert script.feed.stage_died(stage, DIED) == (ONE if lost else 0)
        assert [type(event) for event in await script.events()] == [Failed] * lost

    run(test)


def test_death__of_the_decoder_is_always_told() -> None:
    """Nobody knows what speech it had been given, unless it had said that there is no more."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        assert script.feed.stage_died("decoder", DIED) == 0
        assert kinds(await script.events()) == [(Failed, 0)]

        script.say("decoder", Kind.DONE, 0)
        assert await script.ended()
        script.feed.stage_died("decoder", DIED)
        assert await script.ended()

    run(test)


@pytest.mark.parametrize("stage", ALL)
def test_death__of_an_idle_session_is_not_a_failure(stage: str) -> None:
    """A turn that is complete is nobody's loss."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.endpoint(ONE)
        script.words(ONE)
        script.answer(ONE, clauses=0)
        await script.events()
        script.feed.stage_died(stage, DIED)

        assert [type(event) for event in await script.events()] == ([Failed] if stage == "decoder" else [])

    run(test)


@pytest.mark.parametrize("told", [False, True])
def test_death__before_anything_was_given_is_tried_again_once(told: bool) -> None:
    """After the first event, and the second time, the caller hears of it."""

    async def test() -> None:
        script, again = Script(Mode.SPEAK, ("voice",)), [0]
        script.feed.again = lambda: again.append(1)
        if told:
            script.say("voice", Kind.AUDIO, 1)
            await script.events()
        script.feed.stage_died("voice", DIED)
        if not told:
            assert await script.events() == []
            script.feed.stage_died("voice", DIED)
        with pytest.raises(StageDied):
            await script.events(1)

        assert len(again) - 1 == (not told)

    run(test)


def test_death__of_a_stage_off_the_route() -> None:
    """A chat does not need the voice."""

    async def test() -> None:
        script = Script(Mode.CHAT, ("llm",))
        script.feed.stage_died("voice", DIED)
        script.say("llm", Kind.DONE, 1)
        assert kinds(await script.events(1)) == [(TurnDone, 1)]

        one = Script(Mode.CHAT, ("llm",))
        one.feed.stage_died("llm", DIED)
        with pytest.raises(StageDied):
            await one.events(1)

    run(test)
