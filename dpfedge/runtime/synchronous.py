# SPDX-License-Identifier: Apache-2.0
"""The runtime for synchronous callers: an asynchronous one whose coroutines run on a loop in a thread of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from dpfedge.errors import UsageError
from dpfedge.pipeline.events import Event
from dpfedge.pipeline.prepare import Prepared, prepare

if TYPE_CHECKING:
    from dpfedge.runtime.asynchronous import AsyncRuntime
    from dpfedge.runtime.loop import LoopThread, Pull

__all__ = ["Runtime", "SyncRuntime"]

T = TypeVar("T")


class SyncRuntime:
    """Base of `Runtime`; `opener` makes the asynchronous runtime. Any thread of the process may use it."""

    opener: ClassVar[Callable[..., Awaitable[Any]]]

    def __init__(self, loop: LoopThread) -> None:
        self._loop, self._pid = loop, os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._inner: Any = None

    @classmethod
    def _open(cls, package: Any, **options: Any) -> Self:
        # asyncio is not imported with this module: the stages' parent is started before it
        from dpfedge.runtime.loop import LoopThread

        runtime = cls(LoopThread())
        opening = runtime._loop.submit(cls.opener(package, **options))
        try:
            runtime._inner = opening.result()
        except BaseException:
            opening.cancel()  # Ctrl-C while it starts: what was started is ended by the stop below
            runtime._loop.stop()
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
                self._loop.stop()

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
        future = self._loop.submit(coroutine)
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
        from dpfedge.runtime.loop import Pull

        pull = Pull(events)
        try:
            while (event := self._call(pull.next())) is not None:
                yield event
        finally:
            self._end(pull)

    def _end(self, pull: Pull) -> None:
        if self._unusable() is not None:
            return  # `close` has ended it
        ending = self._loop.submit(pull.end())
        if not self._loop.is_current():  # the garbage collector may run this on the loop itself
            ending.result()


class Runtime(SyncRuntime):
    """A running pipeline for synchronous callers; the same methods as AsyncRuntime, its iterators are plain ones."""

    @staticmethod
    async def opener(prepared: Prepared) -> AsyncRuntime:
        """The asynchronous runtime, imported while the stages' parent warms up."""
        from dpfedge.runtime.asynchronous import AsyncRuntime

        return await AsyncRuntime.open(prepared)

    @classmethod
    def open(
        cls,
        package: str | Path,
        *,
        board: str = "auto",
        check: Literal["fast", "full"] = "full",
        allow_unsigned: bool = False,
        trust: Sequence[Path] | None = None,
    ) -> Self:
        """Bind `package` to `board`, start its stages, and return when every one is warm; use it as a context manager.

        BindError, BoardError or PackageError as found, SignatureError unless a key in one of the directories `trust`
        has signed it or `allow_unsigned` is set; StageError names a stage that cannot start.
        """
        prepared = prepare(package, board=board, check=check, allow_unsigned=allow_unsigned, trust=trust)
        try:
            return cls._open(prepared)
        except BaseException:
            prepared.close()
            raise
