# SPDX-License-Identifier: Apache-2.0
"""Which events of the Realtime protocol a native client gets, and as what."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.errors import StageDied
from dpfedge.serve.native import outbox as module
from dpfedge.serve.native.outbox import NativeOutbox
from dpfedge.serve.native.wire import Done, EventKind

REALTIME = Path(__file__).parents[4] / "dpfedge/serve/realtime"


class FakeChannel:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def tell(self, kind: EventKind, number: int = 0, **rest: Any) -> None:
        self.told.append((kind.name, number, rest))

    async def play(self, samples: Any, answer: int) -> None:
        self.told.append(("play", answer))

    def end_sound(self, answer: int) -> None:
        self.told.append(("end", answer))

    def silence(self, answer: int) -> None:
        self.told.append(("silence", answer))


def told(*events: tuple[str, dict[str, Any]], interrupts: bool = True) -> list[Any]:
    async def run() -> list[Any]:
        channel = FakeChannel()
        out = NativeOutbox(channel, interrupts)  # type: ignore[arg-type]
        for kind, fields in events:
            if kind == "sound":
                await out.sound(np.zeros(4, np.int16), 24_000)
            elif kind == "failed":
                await out.error(StageDied("its process died", stage="llm"))
            else:
                await out.send(kind, **fields)
        return channel.told

    return asyncio.run(run())


def done(status: str, **details: Any) -> tuple[str, dict[str, Any]]:
    return "response.done", {"response": {"status": status, "status_details": details or None}}


def test_every_event__is_sent_or_left_out_on_purpose() -> None:
    """What the conversation may say is known here."""
    text = "".join((REALTIME / name).read_text() for name in ("commands.py", "turns.py", "response.py"))
    said = set(re.findall(r'"((?:input_audio_buffer|conversation|response|session)\.[a-z_.]+[a-z])"', text))
    commands = {"session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "input_audio_buffer.clear"}
    commands |= {"conversation.item.create", "conversation.item.truncate", "response.create", "response.cancel"}
    commands |= {"response.instructions"}  # a parameter
    known = set(NativeOutbox(FakeChannel(), True)._senders) | module._NOT_SENT  # type: ignore[arg-type]
    assert said - commands <= known


def test_utterance__has_one_number() -> None:
    """From its first sound to its last word; the next one has the next."""
    item = {"item_id": "a"}
    kind = "conversation.item.input_audio_transcription"
    events = told(
        ("input_audio_buffer.speech_started", {"audio_start_ms": 40, **item}),
        ("input_audio_buffer.speech_stopped", {"audio_end_ms": 90, **item}),
        (f"{kind}.delta", {"delta": "turn", "content_index": 0, **item}),
        (f"{kind}.completed", {"transcript": "turn left", "usage": {}, **item}),
        ("input_audio_buffer.speech_started", {"audio_start_ms": 200, "item_id": "b"}),
        interrupts=False,
    )
    assert events == [
        ("SPEECH_STARTED", 1, {"at_ms": 40}),
        ("SPEECH_STOPPED", 1, {"at_ms": 90}),
        ("WORDS", 1, {"text": "turn"}),
        ("TRANSCRIPT", 1, {"text": "turn left"}),
        ("SPEECH_STARTED", 2, {"at_ms": 200}),
    ]


def test_answer__its_sound_ends_before_it_does() -> None:
    """Also one without sound, which has no end of it."""
    events = told(
        ("response.created", {"response": {}}),
        ("response.output_audio_transcript.delta", {"delta": "Go", "item_id": "x"}),
        ("sound", {}),
        done("completed"),
        ("response.created", {"response": {}}),
        ("response.output_text.delta", {"delta": "On", "item_id": "y"}),
        done("incomplete", reason="max_output_tokens"),
    )
    assert events == [
        ("ANSWER_STARTED", 1, {}),
        ("ANSWER_TEXT", 1, {"text": "Go"}),
        ("play", 1),
        ("end", 1),
        ("ANSWER_DONE", 1, {"code": Done.COMPLETED, "text": ""}),
        ("ANSWER_STARTED", 2, {}),
        ("ANSWER_TEXT", 2, {"text": "On"}),
        ("ANSWER_DONE", 2, {"code": Done.TOO_LONG, "text": "max_output_tokens"}),
    ]


def test_interruption__silences() -> None:
    """Speech ends the sound of an answer that is long complete, too; a cancelled answer ends its own."""
    speech = ("input_audio_buffer.speech_started", {"audio_start_ms": 1, "item_id": "a"})
    start = ("response.created", {"response": {}})
    assert told(start, ("sound", {}), done("completed"), speech)[3:] == [
        ("ANSWER_DONE", 1, {"code": Done.COMPLETED, "text": ""}),
        ("silence", 1),
        ("SPEECH_STARTED", 1, {"at_ms": 1}),
    ]
    assert told(start, ("sound", {}), done("completed"), speech, speech).count(("silence", 1)) == 1
    assert told(start, done("cancelled", reason="turn_detected"), speech).count(("silence", 0)) == 0
    assert told(start, ("sound", {}), done("cancelled", reason="turn_detected"))[2:] == [
        ("silence", 1),
        ("ANSWER_DONE", 1, {"code": Done.CANCELLED, "text": "turn_detected"}),
    ]


def test_failures__are_told_with_their_text() -> None:
    """Of an answer, and of anything else."""
    error = {"error": {"message": "llm: its process died"}, "reason": None}
    events = told(("response.created", {"response": {}}), done("failed", **error), ("failed", {}))
    assert events[1:] == [
        ("ANSWER_DONE", 1, {"code": Done.BROKEN, "text": "llm: its process died"}),
        ("ERROR", 0, {"code": 503, "text": events[2][2]["text"]}),
    ]
    assert "its process died" in events[2][2]["text"]


def test_utterances__remembered_are_bounded() -> None:
    """Thousands of them leave nothing behind."""
    out = NativeOutbox(FakeChannel(), True)  # type: ignore[arg-type]
    assert [out._number(str(index)) for index in range(1000)] == list(range(1, 1001))
    assert len(out._utterances) == 32
