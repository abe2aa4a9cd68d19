# SPDX-License-Identifier: Apache-2.0
"""Stage messages become events; turns become complete; deaths end what they touched."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from made_feed import ALL, DIED, ONE, Script, kinds, run

from dpfedge.errors import StageError
from dpfedge.limits import BACKLOG_LEASES, EVENTS_MAX
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    Failed,
    PartialTranscript,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.pipeline.feed import Feed
from dpfedge.pipeline.io import LinkIO, LinkSlot
from dpfedge.pipeline.messages import LinkMessage
from dpfedge.stage.api import Kind, Mode


def test_converse__a_whole_turn() -> None:
    """Every event in order, the report of every stage, and no lease left."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.say("encoder", Kind.DRAFT, ONE, "hel")
        script.endpoint(ONE)
        script.words(ONE)
        script.answer(ONE)
        script.say("voice", Kind.AUDIO, ONE)
        script.say("voice", Kind.DONE, ONE, {"audio_ms": 1})
        events = await script.events()

        assert [type(event) for event in events] == [
            SpeechStarted, PartialTranscript, SpeechStopped, Transcript, TextDelta, AudioChunk, TurnDone,
        ]  # fmt: skip
        done = events[-1]
        assert isinstance(done, TurnDone)
        assert (done.turn, done.finish) == (ONE, "length")
        assert set(done.report) == {*ALL, "runtime"}
        assert done.report["runtime"] == {"first_audio_ns": 5, "first_text_ns": 5, "done_ns": 5}
        script.feed.release()
        assert [message.released for message in script.messages] == [1] * len(script.messages)

    run(test)


def test_resting__only_sessions_without_a_turn() -> None:
    """From the first sign of speech until the turn is complete something would be lost."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        assert script.feed.resting
        script.speech(ONE)
        await asyncio.sleep(0)
        assert not script.feed.resting
        assert not Script(Mode.CHAT).feed.resting

    run(test)


def test_converse__ends_after_the_last_turn() -> None:
    """The decoder's word for the whole session may come long before the answer's end."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.endpoint(ONE)
        script.say("decoder", Kind.DONE, 0, {"segments": 1})
        script.words(ONE)
        script.answer(ONE)
        assert TurnDone not in [type(event) for event in await script.events()]

        script.say("voice", Kind.DONE, ONE)
        assert kinds(await script.events(1)) == [(TurnDone, ONE)]
        assert await script.ended()

    run(test)


def test_converse__without_speech_ends_at_once() -> None:
    """Silence has no turn."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.say("decoder", Kind.DONE, 0)
        assert await script.ended()

    run(test)


@pytest.mark.parametrize(("route", "clauses"), [(ALL, 0), (ALL[:3], 2)])
def test_converse__needs_no_voice_that_has_nothing_to_say(route: tuple[str, ...], clauses: int) -> None:
    """No clause, or no voice on the route."""

    async def test() -> None:
        script = Script(Mode.CONVERSE, route)
        script.speech(ONE)
        script.endpoint(ONE)
        script.words(ONE)
        script.answer(ONE, clauses=clauses)

        assert kinds(await script.events())[-1] == (TurnDone, ONE)

    run(test)


def test_converse__waits_for_a_slow_encoder_report() -> None:
    """The llm may be done before the encoder told the sink; the order on one link is the only order there is."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.speech(ONE)
        script.endpoint(ONE)
        script.say("llm", Kind.DONE, ONE, {"finish": "no_speech", "clauses": 0})
        assert TurnDone not in [type(event) for event in await script.events()]

        script.words(ONE, "")
        assert kinds(await script.events()) == [(Transcript, ONE), (TurnDone, ONE)]

    run(test)


def test_converse__a_typed_turn_needs_no_ears() -> None:
    """Decoder and encoder have no part in it."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.feed.expect(1)
        script.say("decoder", Kind.DONE, 0)
        script.answer(1)
        script.say("voice", Kind.DONE, 1)

        assert kinds(await script.events(2)) == [(TextDelta, 1), (TurnDone, 1)]
        assert await script.ended()

    run(test)


def test_transcribe__is_done_with_its_last_segment() -> None:
    """Decoder and encoder both mark the file's end with turn 0."""

    async def test() -> None:
        script = Script(Mode.TRANSCRIBE, ALL[:2])
        for turn in (1, 2):
            script.speech(turn)
            script.say("encoder", Kind.TEXT, turn, {"text": "a", "start_ms": 0, "end_ms": 1})
        script.say("decoder", Kind.DONE, 0, {"segments": 2})
        assert TurnDone not in [type(event) for event in await script.events()]

        script.say("encoder", Kind.DONE, 0, {"finish": "stop"})
        assert kinds(await script.events(1)) == [(TurnDone, 0)]
        assert await script.ended()

    run(test)


@pytest.mark.parametrize(("mode", "stage"), [(Mode.CHAT, "llm"), (Mode.SPEAK, "voice")])
def test_single__ends_after_its_turn(mode: Mode, stage: str) -> None:
    """One answer, then nothing."""

    async def test() -> None:
        script = Script(mode, (stage,))
        script.say(stage, Kind.DONE, 1, {"clauses": 0})

        assert kinds(await script.events(1)) == [(TurnDone, 1)]
        assert await script.ended()

    run(test)


def test_audio__is_the_links_memory_until_the_next_event(rig: Any) -> None:
    """No copy on the way, and the slot is free as soon as the caller goes on."""

    async def test() -> None:
        feed = Feed(Mode.SPEAK, ("voice",), 22050)
        producer, consumer = rig.arena.producer("voice.sink", 1), rig.arena.consumer("voice.sink", 2)
        io = LinkIO(rig.arena, {"sink": producer}, 1, {"mode": int(Mode.SPEAK)})
        slot = LinkSlot(producer, producer.loan(8), io, (4,), "i16")
        slot.array[:] = 3
        slot.send(4, kind=Kind.AUDIO, turn=1)
        feed.receive("voice", LinkMessage(consumer.receive()), 5, False)

        event = await feed.next()
        assert isinstance(event, AudioChunk)
        assert event.samples.tolist() == [3] * 4
        assert not event.samples.flags.owndata
        assert not event.samples.flags.writeable
        assert rig.held() == {"voice.sink": 1}
        del event
        feed.release()
        assert rig.held() == {}
        assert feed.copies == 0

    run(test)


@pytest.mark.parametrize("scarce", [False, True])
def test_audio__of_a_slow_reader_leaves_the_link(scarce: bool) -> None:
    """A caller that reads late, or keeps chunks, does not stop everybody else's voice."""

    async def test() -> None:
        script = Script(Mode.SPEAK, ("voice",))
        count = 3 * BACKLOG_LEASES
        for _ in range(count):
            script.say("voice", Kind.AUDIO, 1, scarce=scarce)
        await asyncio.sleep(0)
        kept = 0 if scarce else BACKLOG_LEASES

        assert script.feed.copies == count - kept
        assert sum(message.released for message in script.messages) == count - kept
        assert len(await script.events()) == count
        script.feed.close()
        assert [message.released for message in script.messages] == [1] * count

    run(test)


def test_events__that_nobody_reads_end_the_request() -> None:
    """Memory stays bounded; the error says what to do."""

    async def test() -> None:
        script = Script(Mode.CHAT, ("llm",))
        for _ in range(EVENTS_MAX + 10):
            script.say("llm", Kind.TEXT, 1, "x")
        await asyncio.sleep(0)
        with pytest.raises(StageError, match="nobody reads"):
            await script.events(EVENTS_MAX + 1)

    run(test)


def test_close__gives_everything_back_and_ends_who_waits() -> None:
    """Unread chunks, the one being read, and those that still arrive."""

    async def test() -> None:
        script = Script(Mode.SPEAK, ("voice",))
        script.say("voice", Kind.AUDIO, 1)
        script.say("voice", Kind.AUDIO, 1)
        await script.events(1)
        script.feed.close()
        script.say("voice", Kind.AUDIO, 1)
        await asyncio.sleep(0)

        assert [message.released for message in script.messages] == [1] * 3
        assert await script.feed.next() is None

    run(test)


def test_receive__after_the_loop_was_closed() -> None:
    """The sink's thread goes on, and the slot is free."""
    scripts: list[Script] = []

    async def test() -> None:
        scripts.append(Script(Mode.CHAT, ("llm",)))

    run(test)
    thread = threading.Thread(target=scripts[0].say, args=("llm", Kind.TEXT, 1, "x"))
    thread.start()
    thread.join()

    assert [message.released for message in scripts[0].messages] == [1]


def test_message__without_sense_is_an_error_of_the_request() -> None:
    """Whoever waits hears of it."""

    async def test() -> None:
        script = Script(Mode.CONVERSE)
        script.say("decoder", Kind.SPEECH_STARTED, ONE, {"nothing": 1})
        (event,) = await script.events()

        assert isinstance(event, Failed)
        assert "SPEECH_STARTED" in str(event.error)
        assert script.messages[0].released == 1

    run(test)


def test_fail__with_an_error_of_the_callers_own() -> None:
    """What the audio it pushes raised is raised where it reads."""

    async def test() -> None:
        script = Script(Mode.TRANSCRIBE, ALL[:2])
        script.feed.fail(ConnectionResetError("client"))
        with pytest.raises(ConnectionResetError):
            await script.events(1)

    run(test)


def test_observer__sees_every_event_first() -> None:
    """Also one that is never read."""

    async def test() -> None:
        seen: list[Event] = []
        script = Script(Mode.CONVERSE, observe=seen.append)
        script.speech(ONE)
        script.feed.stage_died("decoder", DIED)
        await asyncio.sleep(0)
        script.endpoint(ONE)
        await asyncio.sleep(0)

        assert kinds(seen) == [(Failed, 0), (SpeechStarted, ONE), (SpeechStopped, ONE)]

    run(test)
