# SPDX-License-Identifier: Apache-2.0
"""The embedding API: a package file in, spoken turns, transcripts, answers and speech out.

`AsyncRuntime` is for event loops, `Runtime` is the same for everybody else. Both start the package's stages as processes
of their own and drive the engine that `dpfedge serve` drives; neither knows of HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from dpfedge.errors import DpfError, StageDied, WouldBlock
from dpfedge.pipeline.answer import Answer, Collector
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import Event
from dpfedge.pipeline.feed import Feed
from dpfedge.pipeline.session import Session, push_audio
from dpfedge.pipeline.sync import SyncRuntime
from dpfedge.stage.api import Mode

__all__ = ["Answer", "AsyncRuntime", "AudioFormat", "Runtime", "Sampling", "Session"]

_SPACE_WAIT_S = 0.002


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """What bytes of audio are: raw samples, or any container found by its bytes (`encoding="container"`)."""

    encoding: str = "container"
    """`container`, `pcm_s16le` or `pcm_f32le`."""
    rate: int | None = None
    """Hz; raw samples only."""
    channels: int = 1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the llm chooses tokens; None means the package's own default."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repeat_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0


class AsyncRuntime:
    """A running pipeline, for one event loop. Make it with `open`."""

    def __init__(self, engine: Engine, dispatcher: _Dispatcher) -> None:
        self._engine, self._dispatcher = engine, dispatcher

    @classmethod
    async def open(
        cls, package: str | Path, *, board: str = "auto", check: Literal["fast", "full"] = "fast"
    ) -> AsyncRuntime:
        """Bind `package` to `board`, start its stages, and return when every one is warm."""
        runtime = await cls.launch(package, board=board, check=check)
        try:
            await asyncio.to_thread(runtime._engine.wait_ready)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    @classmethod
    async def launch(
        cls, package: str | Path, *, board: str = "auto", check: Literal["fast", "full"] = "fast"
    ) -> AsyncRuntime:
        """As `open`, but return as soon as the package is bound; `ready` and `wait_ready` tell the rest."""
        dispatcher = _Dispatcher(asyncio.get_running_loop())
        engine = await asyncio.to_thread(Engine.start, package, board=board, check=check, watcher=dispatcher)
        return cls(engine, dispatcher)

    async def wait_ready(self) -> None:
        """Return when every stage is warm; StageError names one that cannot be."""
        await asyncio.to_thread(self._engine.wait_ready)

    @property
    def ready(self) -> bool:
        """Whether every stage is warm."""
        return self._engine.supervisor.ready()

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each stage says of itself, for example `facts["voice"]["rate"]`."""
        return self._engine.facts()

    @property
    def name(self) -> str:
        """The package's name."""
        return self._engine.bound.package.manifest.name

    def status(self) -> dict[str, Any]:
        """Stages, memory and link counters."""
        status = self._engine.status()
        status |= {"package": self.name, "board": self._engine.bound.board.id, "requests": len(self._dispatcher.open)}
        return status

    async def transcribe(
        self, audio: bytes | AsyncIterable[bytes], format: AudioFormat = AudioFormat(), *, language: str | None = None
    ) -> AsyncGenerator[Event, None]:
        """Recognise speech: PartialTranscript and Transcript per segment, then TurnDone. Audio is used while it arrives."""
        decoder = {"format": asdict(format)} | ({"language": language} if language else {})

        async def feeder(key: int) -> None:
            async for piece in _pieces(audio):
                await push_audio(self._engine, key, piece)
            await push_audio(self._engine, key, b"", last=True)

        async with aclosing(self._request(Mode.TRANSCRIBE, {"decoder": decoder}, feeder)) as events:
            async for event in events:
                yield event

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling = Sampling()
    ) -> AsyncGenerator[Event, None]:
        """Answer a list of chat messages: TextDelta as tokens are made, then TurnDone."""
        options = {"messages": [dict(message) for message in messages], "sampling": _given(sampling)}
        async with aclosing(self._request(Mode.CHAT, {"llm": options})) as events:
            async for event in events:
                yield event

    async def speak(self, text: str, *, speed: float = 1.0) -> AsyncGenerator[Event, None]:
        """Say `text`: AudioChunk as it is made, then TurnDone."""
        async with aclosing(self._request(Mode.SPEAK, {"voice": {"text": text, "speed": speed}})) as events:
            async for event in events:
                yield event

    async def converse(
        self,
        format: AudioFormat = AudioFormat("pcm_s16le", 16000),
        *,
        history: Sequence[Mapping[str, str]] = (),
        instructions: str | None = None,
        vad: Mapping[str, Any] | None = None,
        sampling: Sampling = Sampling(),
        spoken: bool = True,
    ) -> Session:
        """Open a conversation; `vad` overrides the package's endpointing, `spoken=False` leaves the voice out."""
        route = self._engine.check_up(Mode.CONVERSE)
        if not spoken:
            route = tuple(stage for stage in route if stage != "voice")
        llm: dict[str, Any] = {"history": [dict(message) for message in history], "sampling": _given(sampling)}
        if instructions is not None:
            llm["instructions"] = instructions
        extra = {"decoder": {"format": asdict(format), "vad": dict(vad or {})}, "llm": llm}
        session = Session(self._engine, _starts(Mode.CONVERSE, route, extra), route, self._rate())
        self._dispatcher.open[session.key] = session
        await session.start()
        return session

    async def ask(self, audio: bytes | str | Path, format: AudioFormat = AudioFormat()) -> Answer:
        """One spoken question (bytes or a file) → the whole answer: transcript, words, samples, report."""
        collector = Collector(self._rate())
        async for event in self.stream(audio, format):
            collector.add(event)
        return collector.answer()

    async def stream(
        self, audio: bytes | str | Path, format: AudioFormat = AudioFormat()
    ) -> AsyncGenerator[Event, None]:
        """As `ask`, event by event while they happen."""
        data = audio if isinstance(audio, bytes) else await asyncio.to_thread(Path(audio).read_bytes)
        session = await self.converse(format)
        pushing = asyncio.create_task(_push_all(session, data))
        try:
            async for event in session.events():
                yield event
        finally:
            pushing.cancel()
            await self.end(session)

    async def end(self, session: Session) -> None:
        """Close a conversation and free its place."""
        self._dispatcher.open.pop(session.key, None)
        await session.close()
        session.drop()

    async def close(self) -> None:
        """End every stage; requests that are open fail."""
        self._dispatcher.closed = True
        for key in tuple(self._dispatcher.open):
            self._dispatcher.fail(key, StageDied("the runtime was closed", stage="runtime"))
        await asyncio.to_thread(self._engine.stop)

    async def __aenter__(self) -> AsyncRuntime:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _rate(self) -> int:
        return int(self.facts.get("voice", {}).get("rate", 0))

    async def _request(
        self,
        mode: Mode,
        extra: Mapping[str, Mapping[str, Any]],
        feeder: Callable[[int], Any] | None = None,
    ) -> AsyncGenerator[Event, None]:
        route = self._engine.check_up(mode)
        feed = Feed(mode, route, self._rate())
        key = self._engine.open_request(feed)
        self._dispatcher.open[key] = feed
        self._dispatcher.routes[key] = route
        feeding: asyncio.Task[None] | None = None
        try:
            for stage, options in _starts(mode, route, extra).items():
                await self._send_start(stage, key, options)
            if feeder is not None:
                feeding = asyncio.create_task(feeder(key))
                feeding.add_done_callback(lambda task: _pass_on(task, feed))
            while (event := await feed.next()) is not None:
                yield event
        finally:
            if feeding is not None:
                feeding.cancel()
            self._dispatcher.open.pop(key, None)
            self._dispatcher.routes.pop(key, None)
            self._engine.close_request(key)
            feed.close()

    async def _send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        while True:
            try:
                return self._engine.send_start(stage, key, options)
            except WouldBlock:
                await asyncio.sleep(_SPACE_WAIT_S)


class _Dispatcher:
    """Hears of stages from the supervisor's thread and tells the requests they concern, on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.open: dict[int, Feed | Session] = {}
        self.routes: dict[int, tuple[str, ...]] = {}
        self.closed = False

    def stage_ready(self, name: str) -> None:
        """Nothing waits for it: sessions tell a restarted stage when they next use it."""

    def stage_died(self, name: str) -> None:
        """Pass the death on to the loop."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._died, name)

    def fail(self, key: int, error: DpfError) -> None:
        """End one request with an error."""
        request = self.open.get(key)
        if isinstance(request, Session):
            request.stage_died("", error)
        elif request is not None:
            request.fail(error)

    def _died(self, name: str) -> None:
        error = StageDied("its process died while it held the request", stage=name, remedy="it is restarted; try again")
        for key, request in tuple(self.open.items()):
            if isinstance(request, Session):
                request.stage_died(name, error)
            elif name in self.routes[key]:
                request.fail(error)


class Runtime(SyncRuntime):
    """A running pipeline for synchronous callers; the same methods as AsyncRuntime, its iterators are plain ones."""

    opener = AsyncRuntime.open


def _starts(mode: Mode, route: tuple[str, ...], extra: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Stage → the map of its START message."""
    return {stage: {"mode": int(mode), "route": list(route), **extra.get(stage, {})} for stage in route}


def _given(sampling: Sampling) -> dict[str, Any]:
    return {name: value for name, value in asdict(sampling).items() if value is not None}


async def _pieces(audio: bytes | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(audio, bytes):
        yield audio
        return
    async for piece in audio:
        yield piece


async def _push_all(session: Session, data: bytes) -> None:
    await session.push(data)
    await session.finish()


def _pass_on(task: asyncio.Task[None], feed: Feed) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        if not isinstance(error, DpfError):
            raise error
        feed.fail(error)
