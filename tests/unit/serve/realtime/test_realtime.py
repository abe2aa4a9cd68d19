# SPDX-License-Identifier: Apache-2.0
"""The Realtime protocol with the official client; the runtime's session is scripted by the test."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import openai
import pytest

from dpfedge.errors import NoInstance, StageDied
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
from dpfedge.serve.realtime.turns import agreed_words
from dpfedge.stage.api import Mode

# the official client itself calls websockets in the form that websockets 17.1 deprecates
pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used:DeprecationWarning")

PCM = base64.b64encode(bytes(4800)).decode()
TONE = (np.sin(2 * np.pi * 440 * np.arange(22_050) / 22_050) * 9000).astype(np.int16)
REPORT = {"llm": {"prompt_tokens": 20, "completion_tokens": 4}}


class Wire:
    """A client connection and the scripted session behind it."""

    def __init__(self, connection: Any, runtime: Any) -> None:
        self.connection, self._runtime = connection, runtime
        self._known = len(runtime.sessions)

    @property
    def session(self) -> Any:
        """The session this connection opened last."""
        eventually(lambda: len(self._runtime.sessions) > self._known)
        return self._runtime.sessions[-1]

    def send(self, **event: Any) -> None:
        self.connection.send(event)

    def until(self, kind: str) -> list[Any]:
        """Every event up to the next one of this kind, which is the last."""
        events = [self.connection.recv()]
        while events[-1].type != kind:
            events.append(self.connection.recv())
        return events

    def next(self, kind: str) -> Any:
        return self.until(kind)[-1]


def eventually(check: Callable[[], bool]) -> None:
    while not check():
        time.sleep(0.01)


@contextlib.contextmanager
def dial(served: Any) -> Iterator[Any]:
    """A connection of the official client."""
    with (
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client,
        client.realtime.connect(model="fake") as connection,
    ):
        yield connection


@pytest.fixture
def wire(shared: Any) -> Iterator[Wire]:
    """A connection whose session.created has been read."""
    with dial(shared) as connection:
        one = Wire(connection, shared.runtime)
        created = one.next("session.created")
        assert created.session.audio.input.format.rate == 24_000
        assert created.session.audio.input.turn_detection.type == "server_vad"
        yield one


def speech(turn: int, text: str) -> list[Event]:
    """What the runtime says of one utterance."""
    return [
        SpeechStarted(turn, 1, 320),
        PartialTranscript(turn, 1, text[:8]),
        SpeechStopped(turn, 1, 1800, 320, "silence"),
        Transcript(turn, 1, text, 320, 1800),
    ]


def answer(turn: int, *words: str, finish: str = "stop") -> list[Event]:
    """What the runtime says of one answer of a second of sound."""
    texts = [TextDelta(turn, 1, word) for word in words]
    return [*texts, AudioChunk(turn, 1, TONE, 22_050), TurnDone(turn, 1, finish, REPORT)]


def test_turn__spoken_question_spoken_answer(wire: Wire) -> None:
    """The events of one turn come in OpenAI's order, with one user item and one assistant item."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "where to go"), *answer(1024, "Turn ", "left."))
    events = wire.until("response.done")

    kinds = [event.type for event in events]
    assert kinds == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.input_audio_transcription.delta",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]
    assert wire.session.calls[0][1].rate == 24_000
    assert len({event.item_id for event in events[:3]}) == 1
    assert events[5].transcript == "where to go"
    done = events[-1].response
    assert (done.status, done.usage.total_tokens) == ("completed", 24)
    assert done.output[0].content[0].transcript == "Turn left."
    sound = b"".join(base64.b64decode(event.delta) for event in events if event.type == "response.output_audio.delta")
    assert len(sound) == 2 * 24_000


def test_turn__silence_is_never_answered(wire: Wire) -> None:
    """An utterance without words ends without a response."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, ""), TurnDone(1024, 1, "no_speech"))
    completed = wire.next("conversation.item.input_audio_transcription.completed")
    wire.send(type="response.cancel")

    assert completed.transcript == ""
    assert not [event for event in wire.until("error") if event.type.startswith("response.")]


def test_turn__length_is_incomplete(wire: Wire) -> None:
    """The reason says that the limit cut it."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "talk"), *answer(1024, "On and", finish="length"))
    done = wire.next("response.done").response

    assert (done.status, done.status_details.reason) == ("incomplete", "max_output_tokens")


def test_barge_in__cancels_and_tells_what_was_heard(wire: Wire) -> None:
    """Speech during the answer ends it; late words of it are not shown; the next turn is answered."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "tell me"), TextDelta(1024, 1, "Once upon a time"))
    wire.next("response.output_audio_transcript.delta")
    wire.session.feed(
        SpeechStarted(2048, 1, 5000), TextDelta(1024, 1, " late"), *speech(2048, "stop")[2:], *answer(2048, "Fine.")
    )
    cancelled = wire.next("response.done").response
    rest = wire.until("response.done")

    assert (cancelled.status, cancelled.status_details.reason) == ("cancelled", "turn_detected")
    assert ("interrupt", "") in wire.session.calls
    assert rest[-1].response.output[0].content[0].transcript == "Fine."
    assert all(getattr(event, "delta", "") != " late" for event in rest)


def test_text__item_and_response(wire: Wire) -> None:
    """A typed message is answered on request, in text when asked for."""
    wire.send(
        type="session.update", session={"type": "realtime", "output_modalities": ["text"], "instructions": "Be kind."}
    )
    wire.next("session.updated")
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    wire.send(type="conversation.item.create", item=item)
    wire.send(type="response.create")
    wire.next("response.created")
    wire.session.feed(TextDelta(2, 1, "Hi"), TextDelta(2, 1, "!"), TurnDone(2, 1, "stop", REPORT))
    events = wire.until("response.done")

    opened = wire.session.calls[0][2]
    assert (opened["instructions"], opened["spoken"]) == ("Be kind.", False)
    assert [call for call in wire.session.calls if call[0] in ("say", "respond")] == [("say", "hello"), ("respond",)]
    assert "response.output_text.done" in [event.type for event in events]
    assert events[-1].response.output[0].content[0].text == "Hi!"


def test_by_hand__commit_then_response(wire: Wire) -> None:
    """turn_detection null: commit makes the item, response.create answers it, nothing is answered before."""
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}}
    wire.send(type="session.update", session={"type": "realtime", "audio": audio})
    assert wire.next("session.updated").session.audio.input.turn_detection is None
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.send(type="input_audio_buffer.commit")
    committed = wire.next("input_audio_buffer.committed")
    wire.send(type="response.create")
    wire.next("response.created")
    wire.session.feed(*speech(1024, "by hand"), *answer(1024, "Yes."))
    events = wire.until("response.done")

    assert ("commit",) in wire.session.calls
    assert wire.session.calls[0][1].rate == 16_000
    done = [event for event in events if event.type == "conversation.item.done"]
    assert done[0].item.id == committed.item_id
    assert events[-1].response.output[0].content[0].transcript == "Yes."
    assert ("interrupt", "") not in wire.session.calls
    assert ("respond",) not in wire.session.calls


def test_by_hand__nothing_is_answered_unasked(wire: Wire) -> None:
    """create_response false: the pipeline's own answer is given up, and words of it are not shown."""
    detection = {"type": "server_vad", "create_response": False}
    wire.send(type="session.update", session={"type": "realtime", "audio": {"input": {"turn_detection": detection}}})
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "just listen"), TextDelta(1024, 1, "No"))
    wire.next("conversation.item.done")
    eventually(lambda: ("interrupt", "") in wire.session.calls)
    wire.send(type="response.create")
    created = wire.until("response.created")

    assert [event.type for event in created] == ["response.created"]
    eventually(lambda: wire.session.calls[-1] == ("respond",))


def test_truncate__keeps_the_words_that_were_heard(wire: Wire) -> None:
    """Half of the sound is half of the text, in whole words."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "go"), *answer(1024, "one two three four"))
    item = wire.next("response.done").response.output[0]
    wire.send(type="conversation.item.truncate", item_id=item.id, content_index=0, audio_end_ms=500)
    cut = wire.next("conversation.item.truncated")

    assert (cut.item_id, cut.audio_end_ms) == (item.id, 500)
    assert wire.session.calls[-1] == ("interrupt", "one two")


def test_cancel__ends_the_answer(wire: Wire) -> None:
    """response.cancel; a second one is an error."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "go"), TextDelta(1024, 1, "one"))
    wire.next("response.output_audio_transcript.delta")
    wire.send(type="response.cancel", event_id="mine")
    done = wire.next("response.done").response
    wire.send(type="response.cancel", event_id="mine")

    assert done.status_details.reason == "client_cancelled"
    assert wire.next("error").error.event_id == "mine"


@pytest.mark.parametrize(
    "message",
    [
        "{",
        "[]",
        json.dumps({"type": "nonsense"}),
        json.dumps({"type": "input_audio_buffer.append"}),
        json.dumps({"type": "input_audio_buffer.append", "audio": "*not base64*"}),
        json.dumps({"type": "input_audio_buffer.commit"}),
        json.dumps({"type": "session.update"}),
        json.dumps({"type": "session.update", "session": {"type": "transcription"}}),
        json.dumps({"type": "session.update", "session": {"audio": {"input": {"format": {"type": "audio/pcmu"}}}}}),
        json.dumps({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"threshold": 9}}}}}),
        json.dumps({"type": "session.update", "session": {"audio": {"output": {"voice": "nova"}}}}),
        json.dumps({"type": "session.update", "session": {"tools": [{"type": "function"}]}}),
        json.dumps({"type": "conversation.item.create", "item": {"type": "function_call"}}),
        json.dumps({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{}]}}),
        json.dumps({"type": "conversation.item.create", "item": {"type": "message", "role": [], "content": [{}]}}),
        json.dumps({"type": "conversation.item.truncate", "item_id": "x", "audio_end_ms": 5}),
        json.dumps({"type": "nonsense", "event_id": "\ud800"}),
        json.dumps({"type": "response.create", "response": {"input": []}}),
        b"\x00\x01",
    ],
)
def test_error__the_session_lives(wire: Wire, message: Any) -> None:
    """Any wrong event is an error event, and the next right one works."""
    wire.connection._connection.send(message)
    error = wire.next("error").error
    wire.send(type="input_audio_buffer.append", audio=base64.b64encode(b"\x01\x02\x03").decode())

    assert error.type == "invalid_request_error"
    assert error.message
    eventually(lambda: wire.session.heard == b"\x01\x02\x03")


def test_failure__ends_the_turn_only(wire: Wire) -> None:
    """A stage that dies fails the response and is named; the conversation goes on."""
    wire.send(type="input_audio_buffer.append", audio=PCM)
    wire.session.feed(*speech(1024, "go"), Failed(1024, 1, StageDied("its process died", stage="llm")))
    done = wire.next("response.done").response
    error = wire.next("error").error
    wire.session.feed(*speech(2048, "again"), *answer(2048, "Here."))

    assert done.status == "failed"
    assert "stage llm" in error.message
    assert wire.next("response.done").response.status == "completed"


def test_settings__changed_between_turns_reopen_with_the_history(wire: Wire) -> None:
    """The next use of the conversation has the new settings and everything that was said."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}
    wire.send(type="conversation.item.create", item=item)
    first = wire.session
    wire.next("conversation.item.done")
    note = {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "It rains."}]}
    wire.send(type="conversation.item.create", item=note)
    wire.next("conversation.item.done")
    wire.send(type="response.create")
    wire.next("response.created")

    assert wire.session is not first
    assert wire.session.history == [{"role": "user", "content": "hello"}, {"role": "system", "content": "It rains."}]


def test_leaving__ends_the_session(shared: Any) -> None:
    """A client that goes away frees its place in the runtime."""
    before = shared.runtime.ended
    with dial(shared) as connection:
        connection.send({"type": "input_audio_buffer.append", "audio": PCM})
        eventually(lambda: shared.provider.active == 1)
    eventually(lambda: shared.provider.active == 0)

    assert shared.runtime.ended == before + 1


def test_stop__says_goodbye(own: Any) -> None:
    """A server that ends tells the client so before it closes."""
    with dial(own) as connection:
        assert connection.recv().type == "session.created"
        own.stop()
        last = connection.recv()
    own.join()

    assert last.type == "error"
    assert last.error.code == "stopping"


@pytest.mark.parametrize(
    ("before", "now", "agreed"),
    [("", "turn", ""), ("turn le", "turn left", "turn"), ("a b c", "a x c", "a"), ("a b c d", "a b c e f", "a b c")],
)
def test_agreed_words__both_texts_have(before: str, now: str, agreed: str) -> None:
    """Only whole words that both begin with, never the last."""
    assert agreed_words(before, now) == agreed


def test_device__that_is_out_is_an_error_of_the_request(own: Any) -> None:
    """The client is told why, the connection stays, and the same request is served once the device is well."""
    eventually(lambda: own.provider.ready)

    def admit(mode: Mode) -> str:
        raise NoInstance("no instance can serve the request", where="instance cuda:0", health={"cuda:0": {}})

    with dial(own) as connection:
        wire = Wire(connection, own.runtime)
        wire.next("session.created")
        own.provider.instances = SimpleNamespace(admit=admit, healthy=False)
        wire.send(type="input_audio_buffer.append", audio=PCM)
        error = wire.next("error").error
        assert (error.code, "instance cuda:0" in error.message) == ("no_instance", True)
        assert own.runtime.sessions == []
        own.provider.instances = None
        wire.send(type="input_audio_buffer.append", audio=PCM)
        eventually(lambda: own.runtime.sessions and own.runtime.sessions[0].heard)
