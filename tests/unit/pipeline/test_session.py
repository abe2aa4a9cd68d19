# SPDX-License-Identifier: Apache-2.0
"""A session tells its stages what to do, remembers what was said, and outlives them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from dpfedge.errors import Cancelled, InputError, StageDied, UsageError, WouldBlock
from dpfedge.pipeline.events import Failed, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.session import Session, push_audio
from dpfedge.stage.api import TURN_STRIDE, Kind

ALL = ("decoder", "encoder", "llm", "voice")
KEY, ONE, TWO = 65536, TURN_STRIDE, 2 * TURN_STRIDE
DIED = StageDied("died", stage="llm")


class ToyEngine:
    """Notes what is sent; links named in `full` have no slot."""

    audio_piece = 10

    def __init__(self) -> None:
        self.sent: list[tuple[str, Kind, int, Any]] = []
        self.full: set[str] = set()
        self.open: set[int] = set()
        self.cancelled = 0
        self.longest = 10_000

    def open_request(self, receiver: Any) -> int:
        self.open.add(KEY)
        return KEY

    def close_request(self, key: int) -> None:
        self.open.discard(key)

    def live(self, key: int) -> bool:
        return key in self.open

    def cancel_turns(self, key: int, before: int) -> None:
        self.cancelled = before

    def _note(self, stage: str, kind: Kind, turn: int, data: Any) -> None:
        if stage in self.full:
            raise WouldBlock("full")
        self.sent.append((stage, kind, turn, data))

    def send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        self._note(stage, Kind.START, 0, options)

    def send_text(self, stage: str, key: int, kind: Kind, text: str, turn: int) -> None:
        self._note(stage, kind, turn, text)

    def send_map(self, stage: str, key: int, kind: Kind, data: Mapping[str, Any], turn: int) -> None:
        self._note(stage, kind, turn, data)

    def send_audio(self, key: int, data: memoryview, captured_ns: int, *, last: bool = False) -> None:
        self._note("decoder", Kind.AUDIO, 0, (bytes(data), last))

    def fits(self, stage: str, options: Mapping[str, Any]) -> bool:
        return len(str(options)) <= self.longest

    def to(self, stage: str, kind: Kind) -> list[Any]:
        return [data for name, what, _, data in self.sent if (name, what) == (stage, kind)]


class Talk:
    """A session over a toy engine."""

    def __init__(self, route: tuple[str, ...] = ALL, **llm: Any) -> None:
        self.engine, self.closed = ToyEngine(), [0]
        options: dict[str, dict[str, Any]] = {stage: {"mode": 4} for stage in route}
        options["llm"] |= llm
        self.session = Session(self.engine, options, route, 22050, self.closed.append)  # type: ignore[arg-type]

    def happened(self, *events: Any) -> None:
        for event in events:
            self.session._feed._put(event)

    def turn(self, number: int, question: str, *words: str) -> None:
        self.happened(Transcript(number, 0, question, 0, 1), *(TextDelta(number, 0, word) for word in words))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(main())


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


def test_interrupt__of_nothing() -> None:
    """There is no answer to cancel, and nothing is sent."""

    async def test() -> None:
        talk = Talk()
        await talk.session.interrupt()
        assert (talk.engine.cancelled, talk.engine.sent) == (0, [])

    run(test)


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
