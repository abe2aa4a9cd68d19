# SPDX-License-Identifier: Apache-2.0
"""Stage messages become events; turns become complete; deaths end what they touched."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import InputError, StageDied, StageError
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
from dpfedge.pipeline.failure import describe
from dpfedge.pipeline.feed import Feed
from dpfedge.pipeline.io import LinkMessage, LinkSlot
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode

ALL = ("decoder", "encoder", "llm", "voice")
ONE, TWO = TURN_STRIDE, 2 * TURN_STRIDE
DIED = StageDied("died", stage="somebody")


class Words:
    """A message of plain data that counts its releases."""

    def __init__(self, kind: Kind, data: Any = None, turn: int = 0) -> None:
        self.kind, self.turn, self._data, self.released = kind, turn, data, 0

    def map(self) -> Any:
        return {} if self._data is None else self._data

    def text(self) -> str:
        return str(self._data)

    def array(self) -> Any:
        return np.zeros(4, np.int16)

    def release(self) -> None:
        self.released += 1


class Script:
    """A feed and what the stages say to it."""

    def __init__(self, mode: Mode, route: tuple[str, ...] = ALL, **options: Any) -> None:
        self.feed = Feed(mode, route, 22050, **options)
        self.messages: list[Words] = []

    def say(self, stage: str, kind: Kind, turn: int = 0, data: Any = None, scarce: bool = False) -> None:
        self.messages.append(Words(kind, data, turn))
        self.feed.receive(stage, self.messages[-1], 5, scarce)  # type: ignore[arg-type]

    def speech(self, turn: int) -> None:
        self.say("decoder", Kind.SPEECH_STARTED, turn, {"at_ms": 10})

    def endpoint(self, turn: int) -> None:
        self.say("decoder", Kind.SPEECH_STOPPED, turn, {"at_ms": 90, "start_ms": 10, "reason": "silence"})
        self.say("decoder", Kind.DONE, turn, {"audio_ms": 80})

    def words(self, turn: int, text: str = "hello") -> None:
        self.say("encoder", Kind.TEXT, turn, {"text": text, "start_ms": 10, "end_ms": 90})
        self.say("encoder", Kind.DONE, turn, {"tokens": 3})

    def answer(self, turn: int, *, clauses: int = 1) -> None:
        self.say("llm", Kind.TEXT, turn, "hi")
        self.say("llm", Kind.DONE, turn, {"finish": "length", "clauses": clauses})

    async def events(self, count: int | None = None) -> list[Event]:
        """The next `count` events, or all of those that are there."""
        await asyncio.sleep(0)
        found: list[Event] = []
        while len(found) != count and (count is not None or not self.feed._items.empty()):
            event = await self.feed.next()
            if event is None:
                break
            found.append(event)
        return found

    async def ended(self) -> bool:
        await asyncio.sleep(0)
        return not self.feed._items.empty() and await self.feed.next() is None


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(main())


def kinds(events: list[Event]) -> list[tuple[type[Event], int]]:
    return [(type(event), event.turn) for event in events]


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


def test_audio__is_the_links_memory_until_the_next_event(rig: Any) -> None:
    """No copy on the way, and the slot is free as soon as the caller goes on."""

    async def test() -> None:
        feed = Feed(Mode.SPEAK, ("voice",), 22050)
        producer, consumer = rig.arena.producer("voice.sink", 1), rig.arena.consumer("voice.sink", 2)
        slot = LinkSlot(producer, producer.loan(8), 1, (4,), "i16")
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
