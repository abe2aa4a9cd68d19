# SPDX-License-Identifier: Apache-2.0
"""One spoken turn at the pace of a microphone: a question in, the instants that matter out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dpfedge.bench.speech import RATE, Question
from dpfedge.pipeline.events import AudioChunk, Failed, SpeechStopped, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.session import Session
from dpfedge.records import dataclass
from dpfedge.runtime import AsyncRuntime, AudioFormat

__all__ = ["TurnTimes", "voice_turn"]

_PIECE = RATE // 50  # 20 ms, what sound servers deliver
_TAIL_S = 3.0  # silence that follows the words; the endpoint falls into it


@dataclass(slots=True)
class TurnTimes:
    """Instants of CLOCK_MONOTONIC in ns; 0 where the thing did not happen."""

    end_of_speech_ns: int = 0
    endpoint_ns: int = 0
    transcript_ns: int = 0
    first_text_ns: int = 0
    first_audio_ns: int = 0
    done_ns: int = 0
    transcript: str = ""
    text: str = ""
    audio_s: float = 0.0
    report: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def since_speech_ms(self, instant_ns: int) -> float:
        """Milliseconds from the last sample of speech to `instant_ns`."""
        return (instant_ns - self.end_of_speech_ns) / 1e6


async def voice_turn(runtime: AsyncRuntime, question: Question) -> TurnTimes:
    """Ask once, in a new conversation."""
    session = await runtime.converse(AudioFormat("pcm_s16le", RATE))
    times = TurnTimes()
    microphone = asyncio.create_task(_microphone(session, question, times))
    try:
        async for event in session.events():
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, TurnDone):
                times.done_ns, times.report = event.at_ns, event.report
                break
            _note(times, event)
    finally:
        microphone.cancel()
        await runtime.end(session)
    return times


def _note(times: TurnTimes, event: object) -> None:
    if isinstance(event, SpeechStopped):
        times.endpoint_ns = event.at_ns
    elif isinstance(event, Transcript):
        times.transcript_ns, times.transcript = event.at_ns, event.text
    elif isinstance(event, TextDelta):
        times.first_text_ns = times.first_text_ns or event.at_ns
        times.text += event.text
    elif isinstance(event, AudioChunk):
        times.first_audio_ns = times.first_audio_ns or event.at_ns
        times.audio_s += len(event.samples) / event.rate


async def _microphone(session: Session, question: Question, times: TurnTimes) -> None:
    """Push 20 ms pieces when a microphone would have them, then silence."""
    silence = bytes(2 * _PIECE)
    data = question.pcm.tobytes()
    pieces = [data[i : i + 2 * _PIECE] for i in range(0, len(data), 2 * _PIECE)]
    start = time.monotonic()
    for index in range(len(pieces) + int(_TAIL_S * 50)):
        # a piece exists once its last sample was recorded
        await asyncio.sleep(max(0.0, start + (index + 1) * 0.02 - time.monotonic()))
        if index == len(pieces) - 1:
            times.end_of_speech_ns = time.monotonic_ns()
        await session.push(pieces[index] if index < len(pieces) else silence)
