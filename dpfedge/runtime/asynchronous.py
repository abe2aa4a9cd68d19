# SPDX-License-Identifier: Apache-2.0
"""The runtime for event loops: a package in, spoken turns, transcripts, answers and speech out; it knows no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpfedge.errors import StageDied, UsageError
from dpfedge.pipeline.answer import Answer, Collector
from dpfedge.pipeline.deadline import Deadline
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import Event
from dpfedge.pipeline.feed import Feed
from dpfedge.pipeline.observer import Observe, Observer
from dpfedge.pipeline.placement import place
from dpfedge.pipeline.prepare import Prepared, prepare
from dpfedge.pipeline.session import Session, push_audio, when_space
from dpfedge.pipeline.shortage import beside
from dpfedge.runtime.dispatcher import Dispatcher
from dpfedge.runtime.options import AudioFormat, Limits, Sampling
from dpfedge.runtime.starting import started
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from dpfedge.pipeline.plan import Plan
    from dpfedge.store import Located

__all__ = ["AsyncRuntime"]


class AsyncRuntime:
    """A running pipeline, for one event loop. Make it with `open`."""

    def __init__(self, engine: Engine, dispatcher: Dispatcher, observer: Observer | None = None) -> None:
        self._engine, self._dispatcher, self._observer = engine, dispatcher, observer
        dispatcher.observer = observer

    @classmethod
    async def open(
        cls,
        package: str | Path | Located | Prepared,
        *,
        board: str = "auto",
        check: Literal["fast", "full"] = "full",
        allow_unsigned: bool = False,
        trust: Sequence[Path] | None = None,
    ) -> AsyncRuntime:
        """Bind `package` to `board`, start its stages, and return when every one is warm; `prepare` names refusals."""
        runtime = await cls.launch(package, board=board, check=check, allow_unsigned=allow_unsigned, trust=trust)
        try:
            await asyncio.to_thread(runtime._engine.wait_ready)
        except BaseException:
            await runtime.close()
            raise
        return runtime

    @classmethod
    async def launch(
        cls,
        package: str | Path | Located | Prepared,
        *,
        board: str = "auto",
        check: Literal["fast", "full"] = "full",
        allow_unsigned: bool = False,
        trust: Sequence[Path] | None = None,
        observe: Observe | None = None,
    ) -> AsyncRuntime:
        """As `open`, but return as soon as the package is bound; `ready` and `wait_ready` tell the rest.

        A package that `prepare` bound before is taken over as it is. `observe` makes what is told of its work.
        """
        dispatcher = Dispatcher(asyncio.get_running_loop())

        def start() -> Engine:
            if isinstance(package, Prepared):
                return Engine.start(package, dispatcher, observe)
            prepared = prepare(package, board=board, check=check, allow_unsigned=allow_unsigned, trust=trust)
            return Engine.start(prepared, dispatcher, observe)

        engine = await started(start)
        return cls(engine, dispatcher, engine.observer)

    async def wait_ready(self) -> None:
        """Return when every stage is warm; StageError names one that cannot be."""
        await asyncio.to_thread(self._engine.wait_ready)

    @property
    def ready(self) -> bool:
        """Whether every stage is warm."""
        return self._engine.ready()

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What each stage says of itself, for example `facts["voice"]["rate"]`."""
        return self._engine.facts()

    @property
    def name(self) -> str:
        """The package's name."""
        return self._engine.bound.package.manifest.name

    @property
    def pipeline(self) -> Mapping[str, Any]:
        """The package's pipeline section: stages and their configuration."""
        return self._engine.bound.package.manifest.pipeline

    @property
    def manifest_sha256(self) -> bytes:
        """The digest of the package's manifest, which names the package exactly."""
        return bytes(self._engine.bound.package.manifest_sha256)

    def threads(self, stage: str) -> int:
        """Threads that the board gives a stage here."""
        return place(stage, self._engine.bound.board.placement).threads

    @property
    def plan(self) -> Plan:
        """The pipeline on its devices."""
        return self._engine.plan

    def urgency(self, wanted: int) -> int:
        """What a request of that urgency would get now: while memory is low, what is less urgent than usual goes last.

        A request asks by itself; this is for who tells its caller.
        """
        return self._engine.urgency(wanted)

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        """Stages, link counters and, unless it is not wanted, memory."""
        status = self._engine.status(memory=memory)
        manifest, board = self._engine.bound.package.manifest, self._engine.bound.board.id
        status |= {"package": manifest.name, "version": manifest.version, "board": board}
        return status | {"requests": len(self._dispatcher.open)}

    def transcribe(
        self,
        audio: bytes | AsyncIterable[bytes],
        format: AudioFormat = AudioFormat(),
        *,
        language: str | None = None,
        limits: Limits = Limits(),
    ) -> AsyncGenerator[Event, None]:
        """Recognise speech while it arrives: PartialTranscript and Transcript per segment, then TurnDone."""
        decoder = {"format": asdict(format)} | ({"language": language} if language else {})

        async def feeder(key: int) -> None:
            async for piece in _pieces(audio):
                await push_audio(self._engine, key, piece, bulk=True)
            await push_audio(self._engine, key, b"", last=True, bulk=True)

        return self._request(Mode.TRANSCRIBE, {"decoder": decoder}, limits, feeder)

    def chat(
        self, messages: Sequence[Mapping[str, Any]], sampling: Sampling = Sampling(), *, limits: Limits = Limits()
    ) -> AsyncGenerator[Event, None]:
        """Answer a list of chat messages: TextDelta as tokens are made, then TurnDone."""
        options = {"messages": [dict(message) for message in messages], "sampling": _given(sampling)}
        return self._request(Mode.CHAT, {"llm": options}, limits)

    def speak(self, text: str, *, speed: float = 1.0, limits: Limits = Limits()) -> AsyncGenerator[Event, None]:
        """Say `text`: AudioChunk as it is made, then TurnDone."""
        return self._request(Mode.SPEAK, {"voice": {"text": text, "speed": speed}}, limits)

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
        starts, requests = _starts(Mode.CONVERSE, route, extra), self._dispatcher.open
        session = Session(self._engine, starts, route, self._rate(), lambda key: requests.pop(key, None))
        requests[session.key] = session
        if self._observer is not None:
            self._observer.opened(session.key, Mode.CONVERSE)
            session.tell(partial(self._observer.ended, session.key, Mode.CONVERSE))
        try:
            await session.start()
        except BaseException:
            await self.end(session)
            raise
        return session

    async def ask(self, audio: bytes | str | Path, format: AudioFormat = AudioFormat()) -> Answer:
        """One spoken question (bytes or a file) → the whole answer: transcript, words, samples, report."""
        collector = Collector(self._rate())
        async with aclosing(self.stream(audio, format)) as events:
            async for event in events:
                collector.add(event)
        return collector.answer()

    async def stream(
        self, audio: bytes | str | Path, format: AudioFormat = AudioFormat()
    ) -> AsyncGenerator[Event, None]:
        """As `ask`, event by event while they happen; a second question in the audio is a second turn."""
        data = audio if isinstance(audio, bytes) else await asyncio.to_thread(_read, Path(audio))
        session = await self.converse(format)
        pushing = asyncio.create_task(_push_all(session, data))
        pushing.add_done_callback(partial(_pass_on, session.fail))
        try:
            async for event in session.events():
                yield event
        finally:
            pushing.cancel()
            await self.end(session)

    async def end(self, session: Session) -> None:
        """Close a conversation and free its place; its unread events are dropped."""
        await session.close()
        session.drop()

    async def close(self) -> None:
        """End every stage; requests that are open fail. A second call does nothing."""
        error = StageDied("the runtime was closed", stage="runtime", where="runtime")
        for request in tuple(self._dispatcher.open.values()):
            request.fail(error)
        await beside(self._engine.stop)

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
        limits: Limits,
        feeder: Callable[[int], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[Event, None]:
        route = self._engine.check_up(mode)
        feed = Feed(mode, route, self._rate())
        clock = Deadline(limits.deadline_s, feed.fail)
        urgency = self._engine.urgency(limits.urgency)
        common = {} if limits == Limits() else {"deadline_ns": clock.at_ns, "urgency": urgency}
        starts = {stage: {**options, **common} for stage, options in _starts(mode, route, extra).items()}
        key = self._engine.open_request(feed, urgency)
        self._dispatcher.open[key] = feed
        if self._observer is not None:
            self._observer.opened(key, mode)
            feed.ended = partial(self._observer.ended, key, mode)
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            tasks.append(asyncio.create_task(self._feed(key, starts, feeder)))
            tasks[-1].add_done_callback(partial(_pass_on, feed.fail))

        begin()
        # one stage that is given everything at once may be given it again; audio that was pushed is gone
        feed.again = begin if feeder is None else None
        try:
            while (event := await feed.next()) is not None:
                yield event
        finally:
            clock.stop()
            for task in tasks:
                task.cancel()
            self._dispatcher.open.pop(key, None)
            self._engine.close_request(key)
            feed.close()

    async def _feed(
        self, key: int, starts: Mapping[str, Mapping[str, Any]], feeder: Callable[[int], Awaitable[None]] | None
    ) -> None:
        """What a request sends: its START to every stage of its route, then its data."""
        for stage, options in starts.items():
            await when_space(self._engine, key, partial(self._engine.send_start, stage, key, options))
        if feeder is not None:
            await feeder(key)


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


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError("the audio cannot be read", where=str(path), found=error.strerror) from error


def _pass_on(fail: Callable[[Any], None], task: asyncio.Task[None]) -> None:
    """Tell whoever reads the request's events that sending to it failed; an error of the caller's own audio, too."""
    if not task.cancelled() and (error := task.exception()) is not None:
        fail(error)
