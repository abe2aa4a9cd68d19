# SPDX-License-Identifier: Apache-2.0
"""What a client asks: nothing of it is ignored, and half a sample does not outlive a commit."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.serve.metrics import Metrics
from dpfedge.serve.realtime.commands import obey
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.outbox import Outbox

TYPED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}


class Session:
    """A session in which nothing happens by itself."""

    def __init__(self) -> None:
        self.history: list[Any] = []
        self.heard = bytearray()

    async def say(self, text: str) -> None:
        self.history.append(text)

    async def push(self, pcm: bytes) -> None:
        self.heard += pcm

    async def commit(self) -> None:
        pass

    async def clear(self) -> None:
        pass


class Provider:
    """Of a package with one voice and one recogniser."""

    name = "fake"
    runtime = SimpleNamespace(facts={"encoder": {"name": "ear"}, "llm": {}, "voice": {"name": "joe"}})

    def __init__(self) -> None:
        self.session = Session()

    async def converse(self, *_: Any, **__: Any) -> Session:
        return self.session

    def outdated(self, session: Any) -> bool:
        return False

    async def end(self, session: Any) -> None:
        pass


def asked(events: Sequence[Any]) -> tuple[Conversation, list[Any]]:
    """The state behind these client events, and the server events they led to."""
    sent: list[Any] = []

    async def main() -> Conversation:
        async def write(text: str) -> None:
            sent.append(json.loads(text))

        async def reader(state: Any, session: Any) -> None:
            pass

        provider: Any = Provider()
        state = Conversation(provider, Metrics(), Outbox(write), SessionConfig("fake", "joe"), reader)
        for event in events:
            await obey(state, json.dumps(event))
        return state

    return asyncio.run(main()), sent


def append(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio_buffer.append", "audio": base64.b64encode(data).decode()}


@pytest.mark.parametrize(
    ("event", "param"),
    [
        ({"type": "session.update", "session": {}, "colour": 1}, "colour"),
        ({"type": "session.update", "session": {"model": "other"}}, "model"),
        ({"type": "session.update", "session": {"audio": {"input": {"transcription": {"model": "joe"}}}}}, "model"),
        (
            {"type": "session.update", "session": {"audio": {"input": {"transcription": {"language": "de"}}}}},
            "language",
        ),
        ({**append(b"12"), "rate": 8000}, "rate"),
        ({"type": "input_audio_buffer.commit", "final": True}, "final"),
        ({"type": "input_audio_buffer.clear", "event_id": 7}, "event_id"),
        ({"type": "conversation.item.create", "item": TYPED, "previous_item_id": "item_x"}, "previous_item_id"),
        ({"type": "conversation.item.truncate", "item_id": "x"}, "audio_end_ms"),
        ({"type": "response.create", "instructions": "Be brief."}, "instructions"),
        ({"type": "response.cancel", "reason": "bored"}, "reason"),
    ],
)
def test_event__with_a_field_that_would_be_ignored(event: dict[str, Any], param: str) -> None:
    """One error that names it, and nothing is done."""
    state, sent = asked([event])

    assert [one["type"] for one in sent] == ["error"]
    assert sent[0]["error"]["param"] == param
    assert (state.buffered, state.provider.session.history) == (0, [])  # type: ignore[attr-defined]


def test_event__with_what_the_package_has() -> None:
    """Its recogniser's name and language, and what it said of itself."""
    audio = {"input": {"transcription": {"model": "ear", "language": "en"}}}
    _, sent = asked([{"type": "session.update", "event_id": "e", "session": {"model": "fake", "audio": audio}}])

    assert [one["type"] for one in sent] == ["session.updated"]


def test_item__behind_the_last_one() -> None:
    """The only place an item can have may be named: `root` is that of the first."""
    create = {"type": "conversation.item.create", "item": TYPED}
    named = {"type": "conversation.item.create", "item": {**TYPED, "id": "one"}, "previous_item_id": "root"}
    state, sent = asked([named, {**create, "previous_item_id": "one"}, {**create, "previous_item_id": "root"}])

    assert [one["previous_item_id"] for one in sent if one["type"] == "conversation.item.done"] == [None, "one"]
    assert (sent[-1]["error"]["param"], sent[-1]["error"]["code"]) == ("previous_item_id", "unsupported_value")
    assert state.provider.session.history == ["hello", "hello"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ["commit", "clear"])
def test_sound__half_a_sample_before_a_command(command: str) -> None:
    """A session that takes over hears whole samples, as the decoder did."""
    state, _ = asked([append(b"abc"), {"type": f"input_audio_buffer.{command}"}, append(b"defg")])

    assert state.tail.take_over() == (b"abdefg" if command == "commit" else b"defg")
