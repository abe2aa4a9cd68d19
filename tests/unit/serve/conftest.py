# SPDX-License-Identifier: Apache-2.0
"""A runtime without models, and a real server before it: the app is the shipped one, on a loopback port."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from dpfedge.errors import Busy, ContextLengthError, InputError, StageDied
from dpfedge.pipeline.events import AudioChunk, Event, TextDelta, Transcript, TurnDone
from dpfedge.runtime import Limits
from dpfedge.serve.app import create_app
from dpfedge.serve.provider import Provider
from dpfedge.serve.server import Server
from dpfedge.serve.sockets import listen_tcp

RATE = 22_050


DEFAULT = Limits()


class FakeSession:
    """A conversation that a test scripts: `feed` events in, calls out in `calls`."""

    def __init__(self, history: Sequence[Mapping[str, str]]) -> None:
        self.loop = asyncio.get_running_loop()
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.calls: list[tuple[Any, ...]] = []
        self.history = list(history)
        self.heard = bytearray()

    def feed(self, *events: Event) -> None:
        """From the test's thread."""
        for event in events:
            self.loop.call_soon_threadsafe(self.queue.put_nowait, event)

    async def push(self, pcm: bytes) -> None:
        self.heard += pcm

    async def commit(self) -> None:
        self.calls.append(("commit",))

    async def clear(self) -> None:
        self.calls.append(("clear",))

    async def respond(self, options: Mapping[str, Any] | None = None) -> None:
        self.calls.append(("respond",))

    async def say(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})
        self.calls.append(("say", text))

    async def interrupt(self, heard: str | None = None) -> None:
        self.calls.append(("interrupt", heard))

    async def events(self) -> AsyncIterator[Event]:
        while (event := await self.queue.get()) is not None:
            yield event


class FakeRuntime:
    """Answers by keyword; `cancelled` counts the turns that were given up."""

    name = "fake"

    def __init__(self) -> None:
        self.ready = True
        self.facts = {
            "decoder": {}, "encoder": {"name": "fake-ear"},
            "llm": {"name": "fake-llm", "context": 64}, "voice": {"name": "joe", "rate": RATE},
        }  # fmt: skip
        self.warm = asyncio.Event()
        self.warm.set()
        self.cancelled = 0
        self.running = 0
        self.asked: list[Any] = []
        self.limits = Limits()
        self.low = False
        self.audio_bytes = 0
        self.sessions: list[FakeSession] = []
        self.ended = 0

    async def wait_ready(self) -> None:
        await self.warm.wait()

    async def _turn(self, steps: Sequence[Event | Exception | float]) -> AsyncIterator[Event]:
        self.running += 1
        try:
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, Event):
                    yield step
                else:
                    await asyncio.sleep(step)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def transcribe(
        self, audio: Any, format: Any = None, *, language: str | None = None, limits: Limits = DEFAULT
    ) -> AsyncIterator[Event]:
        head, self.audio_bytes = b"", 0
        async for piece in audio:
            head, self.audio_bytes = (head + piece)[:64], self.audio_bytes + len(piece)
            if head.startswith(b"<html"):
                raise InputError("not audio", stage="decoder", found="HTML")
        self.asked.append((format, language))
        self.limits = limits
        silent = head.startswith(b"silence")
        words = (
            [] if silent else [Transcript(0, 1, " Turn left", 100, 900), Transcript(0, 1, "now & then.", 1000, 4700)]
        )
        report = {"decoder": {"audio_ms": 4730}}
        async for event in self._turn([*words, TurnDone(0, 1, "no_speech" if silent else "stop", report)]):
            yield event

    async def chat(self, messages: Any, sampling: Any = None, *, limits: Limits = DEFAULT) -> AsyncIterator[Event]:
        self.asked.append((messages, sampling))
        self.limits = limits
        text = messages[-1]["content"]
        done = TurnDone(1, 1, "stop", {"llm": {"prompt_tokens": 7, "completion_tokens": 3, "ttft_ms": 12.5}})
        words = [TextDelta(1, 1, word) for word in ("Go ", "left 🚗", "")]
        plan: dict[str, list[Event | Exception | float]] = {
            "busy": [Busy("every place is taken", retry_after_s=3)],
            "too long": [ContextLengthError("does not fit", stage="llm", found="90 tokens", allowed="64 tokens")],
            "dies": [words[0], StageDied("its process died", stage="llm")],
            "hangs": [60.0],
            "hangs later": [words[0], 60.0],
            "slow": [words[0], 0.3, words[1], done],
            "length": [words[0], TurnDone(1, 1, "length", done.report)],
        }
        async for event in self._turn(plan.get(text, [*words, done])):
            yield event

    async def speak(self, text: str, *, speed: float = 1.0, limits: Limits = DEFAULT) -> AsyncIterator[Event]:
        self.asked.append((text, speed))
        self.limits = limits
        if text == "...":
            yield TurnDone(1, 1, "stop", {"voice": {"audio_ms": 0.0, "reason": "nothing to speak"}})
            return
        time = np.arange(RATE) / RATE
        tone = (np.sin(2 * np.pi * 440 * time) * 9000).astype(np.int16)
        pieces: list[Event | Exception | float] = [AudioChunk(1, 1, one, RATE) for one in np.array_split(tone, 7)]
        if text == "dies":
            pieces.insert(2, StageDied("its process died", stage="voice"))
        async for event in self._turn([*pieces, TurnDone(1, 1, "stop", {"voice": {"audio_ms": 1000.0}})]):
            yield event

    async def converse(self, format: Any = None, *, history: Any = (), **options: Any) -> FakeSession:
        session = FakeSession(history)
        session.calls.append(("open", format, options))
        self.sessions.append(session)
        return session

    async def end(self, session: FakeSession) -> None:
        self.ended += 1

    async def close(self) -> None:
        self.ready = False

    def urgency(self, wanted: int) -> int:
        return 7 if self.low and wanted > 3 else wanted

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        states = {name: "ready" if self.warm.is_set() and self.ready else "starting" for name in self.facts}
        stages = {name: {"state": state, "pid": 1, "restarts": 0} for name, state in states.items()}
        for row in stages.values() if memory else ():
            row["rss_bytes"] = 5
        link = {"sent": 4, "received": 4, "dropped": 0, "copies": 1, "copied_bytes": 9, "depth": 0, "in_flight": 0}
        return {"stages": stages, "links": {"llm.voice": link}}


class Served:
    """A server in a thread of its own, and what is behind it."""

    def __init__(self) -> None:
        sock = listen_tcp("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(sock)), daemon=True)
        self._thread.start()
        assert self._started.wait(30)

    async def _run(self, sock: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        self.runtime = FakeRuntime()

        async def launch() -> Any:
            return self.runtime

        self.provider = Provider("fake", launch)
        self.provider.start()
        self.server = Server(create_app(self.provider), self.provider)
        serving = asyncio.ensure_future(self.server.serve([sock]))
        while not self.server.started:
            await asyncio.sleep(0.01)
        self._started.set()
        await serving
        await self.provider.close()

    def stop(self) -> None:
        """Tell the server to end, as SIGTERM does."""
        self.server.should_exit = True

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(scope="session")
def shared() -> Iterator[Served]:
    """One server for all tests that leave it as it is."""
    served = Served()
    yield served
    served.stop()
    served.join()


@pytest.fixture
def own() -> Iterator[Served]:
    """A server of the test's own, which it may end."""
    served = Served()
    yield served
    served.stop()
    served.join()


@pytest.fixture
def http(shared: Served) -> Iterator[httpx.Client]:
    """A plain client of the shared server."""
    with httpx.Client(base_url=shared.url, timeout=20) as client:
        yield client
