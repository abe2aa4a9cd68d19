# SPDX-License-Identifier: Apache-2.0
"""What a session remembers: for its own later turns, and for stages that died and come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from made_session import ALL, DIED, ONE, TWO, Talk, run

from dpfedge.errors import InputError
from dpfedge.pipeline.events import TurnDone
from dpfedge.stage.api import Kind


def test_history__is_bounded() -> None:
    """The oldest go first."""

    async def test() -> None:
        talk = Talk(history=[{"role": "user", "content": "first"}])
        for number in range(100):
            await talk.session.say(str(number))
        assert len(talk.session.history) == 64
        assert talk.session.history[-1]["content"] == "99"

    run(test)


def test_restarted_stage__is_told_before_anything_else() -> None:
    """The llm gets the history it lost, and its turn is cancelled in the others."""

    async def test() -> None:
        talk = Talk()
        talk.session._feed.expect(ONE + 1)
        talk.turn(ONE, "what", "that")
        talk.happened(TurnDone(ONE, 0, "stop"))
        talk.session.stage_died("llm", DIED)
        await talk.session.say("and now")

        (start,) = talk.engine.to("llm", Kind.START)
        assert [entry["content"] for entry in start["history"]] == ["what", "that"]
        assert [kind for stage, kind, _, _ in talk.engine.sent if stage == "llm"] == [Kind.START, Kind.TEXT]
        assert talk.engine.cancelled == ONE + 2

    run(test)


def test_restarted_stage__is_told_without_a_next_call() -> None:
    """Speech may be under way to it already."""

    async def test() -> None:
        talk = Talk()
        talk.session.stage_died("encoder", DIED)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(talk.engine.to("encoder", Kind.START)) == 1

        await talk.session.push(b"1")
        assert len(talk.engine.to("encoder", Kind.START)) == 1

    run(test)


def test_restarted_decoder__counts_on() -> None:
    """A turn number below an interrupt's mark would be cancelled for ever."""

    async def test() -> None:
        talk = Talk()
        talk.turn(TWO, "what")
        await talk.session.say("x")
        talk.session.stage_died("decoder", DIED)
        await talk.session.push(b"1")

        assert talk.engine.to("decoder", Kind.START)[0]["turn"] == TWO
        assert [kind for stage, kind, _, _ in talk.engine.sent if stage == "decoder"] == [Kind.START, Kind.AUDIO]

    run(test)


def test_restarted_decoder__hears_again_that_audio_has_ended() -> None:
    """Otherwise the session never ends."""

    async def test() -> None:
        talk = Talk()
        await talk.session.finish()
        talk.session.stage_died("decoder", DIED)
        await asyncio.sleep(0.01)

        assert [kind for _, kind, _, _ in talk.engine.sent] == [Kind.AUDIO, Kind.START, Kind.AUDIO]
        assert talk.engine.sent[-1][3] == (b"", True)

    run(test)


def test_restarted_llm__gets_as_much_history_as_fits() -> None:
    """A long conversation must not be a lost one."""

    async def test() -> None:
        talk = Talk()
        for number in range(20):
            await talk.session.say(f"{number:>5}" * 20)
        talk.engine.longest = 1000
        talk.session.stage_died("llm", DIED)
        await asyncio.sleep(0.01)
        (start,) = talk.engine.to("llm", Kind.START)

        assert 0 < len(start["history"]) < 20
        assert start["history"][-1] == talk.session.history[-1]

    run(test)


def test_start__with_too_long_a_history_is_the_callers_mistake() -> None:
    """Nothing of what was given is dropped silently."""

    async def test() -> None:
        talk = Talk(history=[{"role": "user", "content": "x" * 50}] * 3)
        talk.engine.longest = 10
        await talk.session.start()
        assert len(talk.engine.to("llm", Kind.START)[0]["history"]) == 3

    run(test)


def test_say__that_fails_is_not_remembered() -> None:
    """The llm never heard it."""

    async def test() -> None:
        talk = Talk()

        def too_long(*arguments: Any) -> None:
            raise InputError("too long")

        talk.engine.send_text = too_long  # type: ignore[method-assign]
        with pytest.raises(InputError):
            await talk.session.say("x")
        assert talk.session.history == ()

    run(test)


def test_death__off_the_route_changes_nothing() -> None:
    """A session without a voice does not miss it."""

    async def test() -> None:
        talk = Talk(ALL[:3])
        talk.session.stage_died("voice", DIED)
        await talk.session.push(b"1")
        assert [kind for _, kind, _, _ in talk.engine.sent] == [Kind.AUDIO]

    run(test)
