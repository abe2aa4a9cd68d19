# SPDX-License-Identifier: Apache-2.0
"""Spoken turns over the Realtime protocol with the official client and the demo package."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest

# the official client itself calls websockets in the form that websockets 17.1 deprecates
pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")

QUESTION = "What is the capital of France?"
SILENCE = bytes(2 * 24_000)


@contextlib.contextmanager
def dial(server: Any) -> Iterator[Any]:
    """A connection of the official client."""
    with (
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
        client.realtime.connect(model="voice") as connection,
    ):
        assert connection.recv().type == "session.created"
        yield connection


def speak(connection: Any, pcm: bytes, step: int = 4800) -> None:
    """Send sound in pieces of `step` bytes."""
    for start in range(0, len(pcm), step):
        audio = base64.b64encode(pcm[start : start + step]).decode()
        connection.send({"type": "input_audio_buffer.append", "audio": audio})


def until(connection: Any, kind: str) -> list[Any]:
    """Every event up to the next of this kind."""
    events = [connection.recv()]
    while events[-1].type != kind:
        assert events[-1].type != "error", events[-1]
        events.append(connection.recv())
    return events


@pytest.mark.parametrize("step", [4800, 1323])
def test_turn__spoken_question_spoken_answer(server: Any, spoken: Callable[[str], bytes], step: int) -> None:
    """Also in odd pieces: the words are understood, the answer is spoken and written."""
    with dial(server) as connection:
        speak(connection, spoken(QUESTION) + SILENCE, step)
        events = until(connection, "response.done")

    heard = [event for event in events if event.type == "conversation.item.input_audio_transcription.completed"]
    assert heard[0].transcript.lower() == QUESTION.lower()
    sound = b"".join(base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta")
    assert len(sound) > 24_000
    assert events[-1].response.status == "completed"
    assert events[-1].response.output[0].content[0].transcript.strip()


def test_silence__is_never_answered(server: Any) -> None:
    """Two seconds of nothing, committed by hand to get a word at all: no transcript, no response."""
    with dial(server) as connection:
        speak(connection, SILENCE * 2)
        connection.send({"type": "response.cancel"})
        event = connection.recv()

    assert event.type == "error"
    assert event.error.code == "response_cancel_not_active"


def test_text__answered_in_text(server: Any) -> None:
    """A typed message and output_modalities text."""
    with dial(server) as connection:
        connection.send({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}})
        content = [{"type": "input_text", "text": QUESTION}]
        item = {"type": "message", "role": "user", "content": content}
        connection.send({"type": "conversation.item.create", "item": item})
        connection.send({"type": "response.create"})
        events = until(connection, "response.done")

    assert "Paris" in "".join(event.delta for event in events if event.type == "response.output_text.delta")


def test_by_hand__commit_and_ask(server: Any, spoken: Callable[[str], bytes]) -> None:
    """turn_detection null: only commit ends the utterance, only response.create answers it."""
    with dial(server) as connection:
        audio = {"input": {"turn_detection": None}}
        connection.send({"type": "session.update", "session": {"type": "realtime", "audio": audio}})
        speak(connection, spoken(QUESTION) + SILENCE + spoken(QUESTION))
        connection.send({"type": "input_audio_buffer.commit"})
        connection.send({"type": "response.create"})
        events = until(connection, "response.done")

    kinds = [event.type for event in events]
    assert kinds.count("input_audio_buffer.committed") == 1
    assert kinds.count("response.created") == 1
    assert events[-1].response.status == "completed"


def test_barge_in__the_next_turn_is_right(server: Any, spoken: Callable[[str], bytes]) -> None:
    """Speech during the answer cancels it, and is answered itself."""
    with dial(server) as connection:
        speak(connection, spoken("Tell me a long story about the sea.") + SILENCE)
        until(connection, "response.output_audio_transcript.delta")
        speak(connection, spoken(QUESTION) + SILENCE)
        first = until(connection, "response.done")[-1].response
        second = until(connection, "response.done")
        heard = [one for one in second if one.type == "conversation.item.input_audio_transcription.completed"]

    assert first.status in ("cancelled", "completed")
    assert heard[-1].transcript.lower() == QUESTION.lower()
    assert second[-1].response.status == "completed"


def test_leaving__frees_the_place(server: Any, spoken: Callable[[str], bytes], until: Callable[..., None]) -> None:
    """A client that hangs up in the middle of an answer leaves no request behind."""
    with dial(server) as connection:
        speak(connection, spoken(QUESTION) + SILENCE)
        while connection.recv().type != "response.output_audio_transcript.delta":
            pass
    until(lambda: server.status()["requests"] == 0)

    assert server.status()["active"] == 0
