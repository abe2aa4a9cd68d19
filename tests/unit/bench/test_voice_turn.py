# SPDX-License-Identifier: Apache-2.0
"""One spoken turn: pushed as a microphone would, its instants noted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest

from dpfedge.bench.speech import RATE, Question
from dpfedge.bench.voice_turn import TurnTimes, voice_turn
from dpfedge.errors import StageDied
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    Failed,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)

QUESTION = Question("x", np.arange(RATE // 10, dtype=np.int16))


class Toy:
    """A runtime and its one session, which answers when it has heard the question and one piece of silence."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events_given, self.pieces, self.ended = events, list[bytes](), 0
        self.heard = asyncio.Event()

    async def converse(self, form: Any) -> Toy:
        assert (form.encoding, form.rate) == ("pcm_s16le", RATE)
        return self

    async def push(self, pcm: bytes) -> None:
        self.pieces.append(pcm)
        if len(self.pieces) == 6:
            self.heard.set()

    async def events(self) -> AsyncIterator[Event]:
        await self.heard.wait()
        for event in self.events_given:
            yield event

    async def end(self, session: Toy) -> None:
        self.ended += 1


def ask(*events: Event) -> tuple[Toy, TurnTimes]:
    async def test() -> tuple[Toy, TurnTimes]:
        toy = Toy(events)
        return toy, await asyncio.wait_for(voice_turn(toy, QUESTION), 30)  # type: ignore[arg-type]

    return asyncio.run(test())


def test_turn__notes_first_instants_and_everything_said() -> None:
    """Later words and sounds move no instant; times count from the last sample of speech."""
    sound = np.zeros(2205, np.int16)
    report = {"llm": {"ttft_ms": 1.0}}
    before = time.monotonic_ns()
    toy, times = ask(
        SpeechStopped(1, 10, 0, 0, "silence"), Transcript(1, 20, "what", 0, 1), TextDelta(1, 30, "It "),
        AudioChunk(1, 40, sound, 22050), TextDelta(1, 50, "is."), AudioChunk(1, 60, sound, 22050),
        TurnDone(1, 70, "stop", report),
    )  # fmt: skip

    assert (times.endpoint_ns, times.transcript_ns, times.first_text_ns, times.first_audio_ns) == (10, 20, 30, 40)
    assert (times.transcript, times.text, times.done_ns) == ("what", "It is.", 70)
    assert times.audio_s == pytest.approx(0.2)
    assert times.report == report
    assert before + 99e6 <= times.end_of_speech_ns <= time.monotonic_ns()
    assert times.since_speech_ms(times.end_of_speech_ns + 2_000_000) == 2.0
    assert toy.ended == 1


def test_microphone__gives_20_ms_pieces_then_silence() -> None:
    """All samples in order; what follows is as long and empty."""
    toy, _ = ask(TurnDone(1, 1, "stop"))

    assert b"".join(toy.pieces[:5]) == QUESTION.pcm.tobytes()
    assert {len(piece) for piece in toy.pieces} == {2 * RATE // 50}
    assert not any(toy.pieces[5])


def test_turn__that_fails_raises_and_leaves() -> None:
    """The session is ended all the same."""

    async def test() -> None:
        toy = Toy([Failed(1, 0, StageDied("died", stage="llm"))])
        with pytest.raises(StageDied):
            await voice_turn(toy, QUESTION)  # type: ignore[arg-type]
        assert toy.ended == 1

    asyncio.run(test())
