# SPDX-License-Identifier: Apache-2.0
"""One answer as `response.*` events: their order, what was heard of it, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import StageDied
from dpfedge.pipeline.events import TurnDone
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.response import Response

DONE = TurnDone(1, 0, "stop", {"llm": {"prompt_tokens": 7, "completion_tokens": 3}})


def played(test: Callable[[Response], Awaitable[None]], modality: str = "audio") -> list[dict[str, Any]]:
    """The events that `test` makes the answer send."""
    sent: list[dict[str, Any]] = []

    async def write(text: str) -> None:
        sent.append(json.loads(text))

    async def main() -> None:
        await test(Response(Outbox(write), SessionConfig("toy", "joe", modality=modality), 1, "item_before"))

    asyncio.run(main())
    return sent


async def whole(answer: Response) -> None:
    await answer.begin()
    await answer.add_text("Hello ")
    await answer.add_text("there.")
    await answer.add_audio(np.zeros(2400, np.int16), 24000)
    await answer.finish("completed", done=DONE)


def test_spoken__events_in_openais_order() -> None:
    """Item and part are opened once, closed in reverse; the sound is 16-bit PCM; tokens are counted."""
    events = played(whole)

    assert [event["type"] for event in events] == [
        "response.created", "response.output_item.added", "conversation.item.added", "response.content_part.added",
        "response.output_audio_transcript.delta", "response.output_audio_transcript.delta",
        "response.output_audio.delta", "response.output_audio.done", "response.output_audio_transcript.done",
        "response.content_part.done", "response.output_item.done", "conversation.item.done", "response.done",
    ]  # fmt: skip
    assert len(base64.b64decode(events[6]["delta"])) == 4800
    done = events[-1]["response"]
    assert (done["status"], done["usage"]["total_tokens"]) == ("completed", 10)
    assert done["output"][0]["content"] == [{"type": "output_audio", "transcript": "Hello there."}]


def test_written__sends_no_sound() -> None:
    """The same words as text events."""
    events = played(whole, "text")

    assert not any("audio" in event["type"] for event in events)
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == ["Hello ", "there."]


def test_failed__without_a_word_opens_nothing() -> None:
    """Created, done, and why."""

    async def test(answer: Response) -> None:
        await answer.begin()
        await answer.finish("failed", error=StageDied("died", stage="llm"))

    created, done = played(test)
    assert created["type"] == "response.created"
    assert done["response"]["output"] == []
    assert done["response"]["status_details"]["error"]["stage"] == "llm"
    assert done["response"]["usage"] is None


@pytest.mark.parametrize(
    ("ms", "words"), [(0, ""), (40, ""), (60, "Hello"), (100, "Hello there."), (999, "Hello there.")]
)
def test_heard__whole_words_in_proportion(ms: float, words: str) -> None:
    """Of a complete answer of 100 ms."""
    found: list[str] = []

    async def test(answer: Response) -> None:
        await whole(answer)
        assert answer.sent_ms == 100
        found.append(answer.heard(ms))

    played(test)
    assert found == [words]


def test_playing__is_nothing_before_the_first_sound() -> None:
    """And never more than was sent."""

    async def test(answer: Response) -> None:
        await answer.add_text("Hello")
        assert answer.playing_ms() == 0
        await answer.add_audio(np.zeros(24, np.int16), 24000)
        await asyncio.sleep(0.005)
        assert answer.playing_ms() == answer.sent_ms == 1

    played(test)
