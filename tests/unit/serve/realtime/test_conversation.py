# SPDX-License-Identifier: Apache-2.0
"""A connection's state when its client left in the middle of something, and when the runtime behind it is replaced."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from dpfedge.pipeline.events import SpeechStarted, SpeechStopped, TextDelta, Transcript, TurnDone
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.realtime.commands import obey
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.turns import read_session


class Provider:
    """Opens one session that says something at once, and tells how many it was asked to end."""

    def __init__(self) -> None:
        self.runtime: Any = self
        self.ended = 0

    async def converse(self, *_: Any, **__: Any) -> Any:
        return self

    async def events(self) -> Any:
        yield SpeechStarted(1024, 0, 0)

    def outdated(self, session: Any) -> bool:
        return False

    async def end(self, session: Any) -> None:
        self.ended += 1


def conversation(provider: Any, reader: Any) -> Conversation:
    async def write(text: str) -> None:
        raise WebSocketDisconnect(1006)

    return Conversation(provider, Metrics(), Outbox(write), SessionConfig("fake", "joe"), reader)


async def open_and_close(state: Conversation) -> None:
    await state.session()
    await asyncio.sleep(0.01)
    await state.close()


def test_close__after_the_client_left_in_mid_event() -> None:
    """The session's place is free again, and nothing is raised."""
    provider = Provider()

    asyncio.run(open_and_close(conversation(provider, read_session)))

    assert provider.ended == 1


def test_close__after_its_reader_failed() -> None:
    """A bug in the reader is told, and costs no place."""
    provider = Provider()

    async def reader(state: Any, session: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(open_and_close(conversation(provider, reader)))

    assert provider.ended == 1


class Runtimes:
    """A provider whose runtime can be replaced."""

    def __init__(self) -> None:
        self.generation = 0
        self.sessions: list[Talk] = []
        self.ended: list[Talk] = []

    async def converse(self, *_: Any, history: Any, **__: Any) -> Talk:
        self.sessions.append(Talk(self.generation, history))
        return self.sessions[-1]

    def outdated(self, session: Talk) -> bool:
        return session.generation != self.generation

    async def end(self, session: Talk) -> None:
        self.ended.append(session)
        session.queue.put_nowait(None)


class Talk:
    """A session that a test feeds."""

    def __init__(self, generation: int, history: Any) -> None:
        self.generation, self.history = generation, list(history)
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.heard = bytearray()

    async def push(self, pcm: bytes) -> None:
        self.heard += pcm

    async def clear(self) -> None:
        self.heard.clear()

    async def interrupt(self, heard: str | None = None) -> None:
        self.history[-1]["content"] = str(heard)

    async def events(self) -> Any:
        while (event := await self.queue.get()) is not None:
            yield event


def talking(provider: Runtimes, sent: list[str]) -> Conversation:
    async def write(text: str) -> None:
        sent.append(text)
        await asyncio.sleep(0)

    return Conversation(provider, Metrics(), Outbox(write), SessionConfig("fake", "joe"), read_session)  # type: ignore[arg-type]


def moving(test: Callable[[Runtimes, Conversation, list[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        provider, sent = Runtimes(), list[str]()
        state = talking(provider, sent)
        await asyncio.wait_for(test(provider, state, sent), 30)
        await state.close()

    asyncio.run(main())


APPEND = json.dumps({"type": "input_audio_buffer.append", "audio": base64.b64encode(bytes(range(96)) * 500).decode()})


def test_retire__an_idle_session_at_once() -> None:
    """Its history is what the next one begins with; nothing is opened before it is needed."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        first = await state.session()
        first.history.append({"role": "user", "content": "hello"})  # type: ignore[attr-defined]
        assert not await state.retire()
        provider.generation = 1
        assert await state.retire()
        assert (provider.ended, len(provider.sessions)) == ([first], 1)
        await obey(state, APPEND)

        assert provider.sessions[1].history == [{"role": "user", "content": "hello"}]
        assert provider.sessions[1].generation == 1

    moving(test)


def test_retire__with_the_sound_that_no_utterance_has() -> None:
    """The first session heard it and may not have told yet; the second hears it again."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        await obey(state, APPEND)
        provider.generation = 1
        await obey(state, APPEND)
        one = base64.b64decode(json.loads(APPEND)["audio"])

        assert bytes(provider.sessions[0].heard) == one
        assert bytes(provider.sessions[1].heard) == one + one

    moving(test)


def test_retire__waits_for_the_turns_end() -> None:
    """While somebody speaks or is answered the old session goes on; then the reader itself leaves it."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        await obey(state, APPEND)
        session = provider.sessions[0]
        session.queue.put_nowait(SpeechStarted(1024, 0, 100))
        await eventually(lambda: bool(state.utterances))
        provider.generation = 1
        await obey(state, APPEND)
        assert not await state.retire()
        session.queue.put_nowait(SpeechStopped(1024, 0, 600, 100, "silence"))
        session.queue.put_nowait(Transcript(1024, 0, "hello", 100, 600))
        session.queue.put_nowait(TextDelta(1024, 0, "Hi."))
        await eventually(lambda: state.response is not None)
        assert provider.ended == []
        session.queue.put_nowait(TurnDone(1024, 0, "stop", {}))
        await eventually(lambda: provider.ended == [session])
        kinds = [json.loads(text)["type"] for text in sent]
        assert kinds[-1] == "response.done"
        assert "error" not in kinds
        await obey(state, APPEND)

        assert [one.generation for one in provider.sessions] == [0, 1]
        assert provider.sessions[1].heard.startswith(bytes(session.heard[600 * 48 :]))

    moving(test)


@pytest.mark.parametrize("moved", ["not yet", "nothing is open", "another is open"])
def test_truncate__an_answer_of_the_session_before(moved: str) -> None:
    """A client tells how much was heard after the session moved: the next one must not know more."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        await obey(state, APPEND)
        session = provider.sessions[0]
        session.queue.put_nowait(TextDelta(1024, 0, "One two three."))
        await eventually(lambda: state.response is not None)
        answer = state.response
        assert answer is not None
        session.history.append({"role": "assistant", "content": "One two three."})
        if moved == "nothing is open":
            provider.generation = 1
        session.queue.put_nowait(TurnDone(1024, 0, "stop", {}))
        await eventually(lambda: state.response is None and not state.handling)
        if moved == "another is open":
            provider.generation = 1
            await obey(state, APPEND)
            assert provider.sessions[1].history == [{"role": "assistant", "content": "One two three."}]
        await state.shorten(answer, "One")
        provider.generation = 2
        await obey(state, APPEND)

        assert provider.sessions[-1].history == [{"role": "assistant", "content": "One"}]
        assert len(provider.sessions) == (3 if moved == "another is open" else 2)

    moving(test)


def test_marks__count_from_the_connections_first_sound() -> None:
    """Also in the session that took over."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        for _ in range(8):
            await obey(state, APPEND)  # 8 s
        provider.generation = 1
        await obey(state, APPEND)
        provider.sessions[1].queue.put_nowait(SpeechStarted(1024, 0, 100))
        await eventually(lambda: bool(state.utterances))
        await eventually(lambda: bool(sent))

        assert json.loads(sent[-1])["audio_start_ms"] == 8000 - 3000 + 100

    moving(test)


def test_by_hand__sound_that_was_not_committed_keeps_the_session() -> None:
    """It is the client's utterance already."""

    async def test(provider: Runtimes, state: Conversation, sent: list[str]) -> None:
        state.config = replace(state.config, turn_detection=None)
        await obey(state, APPEND)
        provider.generation = 1
        assert not await state.retire()
        await obey(state, '{"type": "input_audio_buffer.clear"}')

        assert provider.ended == [provider.sessions[0]]

    moving(test)


async def eventually(check: Callable[[], bool]) -> None:
    while not check():
        await asyncio.sleep(0.001)
