# SPDX-License-Identifier: Apache-2.0
"""An asynchronous runtime for synchronous callers: its coroutines run on one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from dpfedge.pipeline.events import Event

__all__ = ["SyncRuntime"]

T = TypeVar("T")


class SyncRuntime:
    """Base of `Runtime`; `opener` makes the asynchronous runtime."""

    opener: ClassVar[Callable[..., Awaitable[Any]]]

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._loop, self._thread = loop, thread
        self._inner: Any = None

    @classmethod
    def open(cls, package: Any, **options: Any) -> Self:
        """See `AsyncRuntime.open`; use it as a context manager."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="dpf-loop", daemon=True)
        thread.start()
        runtime = cls(loop, thread)
        try:
            runtime._inner = runtime._call(_await(cls.opener(package, **options)))
        except BaseException:
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
        """End every stage; see `AsyncRuntime.close`."""
        if self._inner is not None:
            self._call(self._inner.close())
            self._inner = None
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _iterate(self, events: AsyncIterator[Event]) -> Iterator[Event]:
        try:
            while True:
                try:
                    yield self._call(_await(anext(events)))
                except StopAsyncIteration:
                    return
        finally:
            self._call(events.aclose())  # type: ignore[attr-defined]

    def _stop(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)
            self._loop.close()


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable
