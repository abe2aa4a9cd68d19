# SPDX-License-Identifier: Apache-2.0
"""A session tells its stages what to do, remembers what was said, and outlives them."""

from __future__ import annotations

import asyncio

import pytest
from made_session import ALL, DIED, KEY, ONE, TWO, Talk, ToyEngine, run

from dpfedge.errors import Cancelled, UsageError
from dpfedge.pipeline.events import Failed, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.session import push_audio
from dpfedge.stage.api import Kind


def test_start__tells_every_stage_in_order() -> None:
    """Before any data."""

    async def test() -> None:
        talk = Talk()
        await talk.session.start()
        assert [(stage, kind) for stage, kind, _, _ in talk.engine.sent] == [(name, Kind.START) for name in ALL]

    run(test)


def test_push__cuts_audio_into_pieces() -> None:
    """In order, the last one marked when the audio ends."""

    async def test() -> None:
        talk = Talk()
        await talk.session.push(bytes(range(25)))
        await talk.session.push(b"")
        await talk.session.finish()
        pieces = talk.engine.to("decoder", Kind.AUDIO)

        assert [len(data) for data, _ in pieces] == [10, 10, 5, 0]
        assert b"".join(data for data, _ in pieces) == bytes(range(25))
        assert [last for _, last in pieces] == [False, False, False, True]

    run(test)


def test_push__of_two_tasks_does_not_mix() -> None:
    """A full link in the middle of one push keeps the other out."""

    async def test() -> None:
        talk = Talk()
        talk.engine.full.add("decoder")
        pushes = [asyncio.ensure_future(talk.session.push(bytes([number] * 25))) for number in (1, 2)]
        await asyncio.sleep(0.01)
        talk.engine.full.clear()
        await asyncio.gather(*pushes)

        assert b"".join(data for data, _ in talk.engine.to("decoder", Kind.AUDIO)) == b"\1" * 25 + b"\2" * 25

    run(test)


def test_push__on_a_full_link_ends_with_the_session() -> None:
    """Nobody waits for a stage that will not read any more."""

    async def test() -> None:
        talk = Talk()
        talk.engine.full.add("decoder")
        push = asyncio.ensure_future(talk.session.push(b"1"))
        await asyncio.sleep(0.01)
        await talk.session.close()
        with pytest.raises(Cancelled):
            await push

    run(test)


def test_push_audio__keeps_odd_bytes_and_views() -> None:
    """Any buffer; the last piece of a whole file is marked without an empty one behind it."""

    async def test() -> None:
        engine = ToyEngine()
        engine.open.add(KEY)
        await push_audio(engine, KEY, memoryview(b"0123456789abc"), last=True)  # type: ignore[arg-type]
        assert engine.to("decoder", Kind.AUDIO) == [(b"0123456789", False), (b"abc", True)]

    run(test)


def test_controls__go_to_their_stage() -> None:
    """Commit and clear to the decoder, words and answers to the llm."""

    async def test() -> None:
        talk = Talk()
        await talk.session.commit()
        await talk.session.clear()
        await talk.session.say("hello")
        await talk.session.respond({"a": 1})

        assert [(stage, kind, turn) for stage, kind, turn, _ in talk.engine.sent] == [
            ("decoder", Kind.FLUSH, 0),
            ("decoder", Kind.CLEAR, 0),
            ("llm", Kind.TEXT, 1),
            ("llm", Kind.RESPOND, 2),
        ]

    run(test)


def test_typed_turns__lie_between_spoken_ones() -> None:
    """Numbers always rise, and a multiple of the stride is the decoder's."""

    async def test() -> None:
        talk = Talk()
        talk.session._last_turn = ONE - 2
        for _ in range(3):
            await talk.session.say("x")
        assert [turn for _, _, turn, _ in talk.engine.sent] == [ONE - 1, ONE + 1, ONE + 2]

    run(test)


def test_interrupt__cancels_the_answer_and_not_the_new_speech() -> None:
    """Barge-in: a new utterance has begun when the answer before it is stopped."""

    async def test() -> None:
        talk = Talk()
        talk.turn(ONE, "what is it", "it", " is")
        talk.session._last_turn = TWO
        await talk.session.interrupt()

        assert talk.engine.cancelled == ONE + 1
        assert talk.engine.sent[-1] == ("llm", Kind.HEARD, ONE, {"text": "it is"})
        assert talk.session.history == (
            {"role": "user", "content": "what is it"},
            {"role": "assistant", "content": "it is"},
        )

    run(test)


def test_interrupt__keeps_only_what_was_heard() -> None:
    """Words that arrive after it, and those that were never played, were not said."""

    async def test() -> None:
        talk = Talk()
        talk.turn(ONE, "what", "one", " two", " three")
        await talk.session.interrupt("one")
        talk.happened(TextDelta(ONE, 0, " four"), TurnDone(ONE, 0, "cancelled"))

        assert [entry["content"] for entry in talk.session.history] == ["what", "one"]

    run(test)


def test_interrupt__after_the_end_shortens_the_answer() -> None:
    """The loudspeaker is later than the pipeline."""

    async def test() -> None:
        talk = Talk()
        talk.turn(ONE, "what", "one", " two")
        talk.happened(TurnDone(ONE, 0, "stop"))
        await talk.session.interrupt("one")

        assert [entry["content"] for entry in talk.session.history] == ["what", "one"]

    run(test)


def test_resting__between_two_turns() -> None:
    """A stage may be started anew then, but never the decoder; one that the session has not may be at any time."""

    async def test() -> None:
        talk = Talk(("decoder", "encoder", "llm"))
        assert [talk.session.resting(stage) for stage in ("encoder", "llm", "decoder", "voice")] == [1, 1, 0, 1]
        await talk.session.respond()
        assert [talk.session.resting(stage) for stage in ("encoder", "llm", "voice")] == [0, 0, 1]

    run(test)


def test_interrupt__of_nothing() -> None:
    """There is no answer to cancel, and nothing is sent."""

    async def test() -> None:
        talk = Talk()
        await talk.session.interrupt()
        assert (talk.engine.cancelled, talk.engine.sent) == (0, [])

    run(test)


def test_close__frees_the_place_and_ends_the_events() -> None:
    """What happened before is still told; a second close is one close."""

    async def test() -> None:
        talk = Talk()
        talk.turn(ONE, "what")
        talk.engine.full.add("llm")
        talk.session.stage_died("llm", DIED)
        await asyncio.sleep(0)
        await talk.session.close()
        await talk.session.close()
        events = [event async for event in talk.session.events()]

        assert [type(event) for event in events] == [Transcript]
        assert (talk.engine.open, talk.closed) == (set(), [0, KEY])
        await asyncio.sleep(0.01)
        assert talk.session._telling == set()
        with pytest.raises(UsageError, match="the session is closed"):
            await talk.session.push(b"1")
        with pytest.raises(UsageError, match="the session is closed"):
            await talk.session.interrupt()

    run(test)


def test_push__after_finish() -> None:
    """The audio has ended."""

    async def test() -> None:
        talk = Talk()
        await talk.session.finish()
        with pytest.raises(UsageError, match="audio has ended"):
            await talk.session.push(b"1")

    run(test)


def test_fail__is_told_and_ends_the_events() -> None:
    """The runtime was closed under it."""

    async def test() -> None:
        talk = Talk()
        talk.session.fail(DIED)
        events = [event async for event in talk.session.events()]
        assert [type(event) for event in events] == [Failed]

    run(test)
