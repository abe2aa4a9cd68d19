# SPDX-License-Identifier: Apache-2.0
"""The runtime for synchronous callers: an asynchronous one whose coroutines run on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from dpfedge.errors import UsageError
from dpfedge.pipeline.events import Event
from dpfedge.pipeline.prepare import Prepared, prepare

if TYPE_CHECKING:
    from dpfedge.runtime.asynchronous import AsyncRuntime

__all__ = ["Runtime", "SyncRuntime"]

T = TypeVar("T")


class SyncRuntime:
    """Base of `Runtime`; `opener` makes the asynchronous runtime. Any thread of the process may use it."""

    opener: ClassVar[Callable[..., Awaitable[Any]]]

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop, self._thread, self._pid = loop, thread, os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._inner: Any = None

    @classmethod
    def _open(cls, package: Any, **options: Any) -> Self:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="dpf-loop", daemon=True)
        thread.start()
        runtime = cls(loop, thread)
        opening = asyncio.run_coroutine_threadsafe(_await(cls.opener(package, **options)), loop)
        try:
            runtime._inner = opening.result()
        except BaseException:
            opening.cancel()  # Ctrl-C while it starts: what was started is ended by the stop below
            runtime._stop()
            raise
        return runtime

    @property
    def facts(self) -> Any:
        """What each stage says of itself."""
        return self._inner.facts

    def status(self) -> dict[str, Any]:
        """Stages, memory and link counters."""
        return dict(self._inner.status())

    def ask(self, audio: Any, **options: Any) -> Any:
        """One spoken question (bytes or a file) → the whole answer; see `AsyncRuntime.ask`."""
        return self._call(self._inner.ask(audio, **options))

    def stream(self, audio: Any, **options: Any) -> Iterator[Event]:
        """As `ask`, event by event."""
        return self._iterate(self._inner.stream(audio, **options))

    def transcribe(self, audio: bytes, *arguments: Any, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.transcribe`."""
        return self._iterate(self._inner.transcribe(audio, *arguments, **options))

    def chat(self, messages: Any, *arguments: Any, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.chat`."""
        return self._iterate(self._inner.chat(messages, *arguments, **options))

    def speak(self, text: str, **options: Any) -> Iterator[Event]:
        """See `AsyncRuntime.speak`."""
        return self._iterate(self._inner.speak(text, **options))

    def close(self) -> None:
        """End every stage; see `AsyncRuntime.close`. In a forked child, and the second time, it does nothing."""
        with self._closing:
            if self._closed or os.getpid() != self._pid:
                return
            try:
                self._call(self._inner.close())
            finally:
                self._closed = True
                self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if problem := self._unusable():
            coroutine.close()
            raise problem
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C in this thread must end the work on the loop, too
            raise

    def _unusable(self) -> UsageError | None:
        if os.getpid() != self._pid:
            remedy = "open a Runtime in this process"
            return UsageError("the runtime belongs to the process that opened it", where="runtime", remedy=remedy)
        if self._closed:
            return UsageError("the runtime is closed", where="runtime", remedy="open it again")
        return None

    def _iterate(self, events: AsyncGenerator[Event, None]) -> Iterator[Event]:
        pull = _Pull(events)
        try:
            while (event := self._call(pull.next())) is not None:
                yield event
        finally:
            self._end(pull)

    def _end(self, pull: _Pull) -> None:
        if self._unusable() is not None:
            return  # `close` has ended it
        ending = asyncio.run_coroutine_threadsafe(pull.end(), self._loop)
        if threading.current_thread() is not self._thread:  # the garbage collector may run this on the loop itself
            ending.result()

    def _stop(self) -> None:
        asyncio.run_coroutine_threadsafe(_end_everything(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Runtime(SyncRuntime):
    """A running pipeline for synchronous callers; the same methods as AsyncRuntime, its iterators are plain ones."""

    @staticmethod
    async def opener(prepared: Prepared) -> AsyncRuntime:
        """The asynchronous runtime, imported while the stages' parent warms up."""
        from dpfedge.runtime.asynchronous import AsyncRuntime

        return await AsyncRuntime.open(prepared)

    @classmethod
    def open(cls, package: str | Path, *, board: str = "auto", check: Literal["fast", "full"] = "fast") -> Self:
        """Bind `package` to `board`, start its stages, and return when every one is warm; use it as a context manager.

        BindError, BoardError or PackageError as found; StageError names a stage that cannot start.
        """
        prepared = prepare(package, board=board, check=check)
        try:
            return cls._open(prepared)
        except BaseException:
            prepared.close()
            raise


class _Pull:
    """One iteration of an asynchronous generator; used on the loop."""

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        self._events = events
        self._pending: asyncio.Task[Any] | None = None

    async def next(self) -> Event | None:
        """The next event, None after the last."""
        self._pending = asyncio.current_task()
        return await anext(self._events, None)

    async def end(self) -> None:
        """Close the generator, also one that is still waiting for its next event."""
        if self._pending is not None and not self._pending.done():
            self._pending.cancel()
            await asyncio.wait({self._pending})
        await self._events.aclose()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


async def _end_everything() -> None:
    """Whoever waits on this loop gets a CancelledError before the loop ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
