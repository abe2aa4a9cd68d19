# SPDX-License-Identifier: Apache-2.0
"""Asynchronous objects for synchronous callers: each lives on a loop in a thread of its own; it knows none of them."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from dpfedge.errors import UsageError
from dpfedge.pipeline.shortage import names_shortage

if TYPE_CHECKING:
    from dpfedge.runtime.loop import LoopThread, Pull

__all__ = ["Looped"]

T = TypeVar("T")


class Looped:
    """Base of what lives on a loop in a thread of its own; `opener` makes it there. Any thread may use it."""

    opener: ClassVar[Callable[..., Awaitable[Any]]]

    def __init__(self, loop: LoopThread) -> None:
        self._loop, self._pid = loop, os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._inner: Any = None

    @classmethod
    @names_shortage
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

    def status(self, **options: Any) -> dict[str, Any]:
        """Stages, memory and link counters."""
        return dict(self._inner.status(**options))

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

    def _post(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop soon, from any thread and from the garbage collector; never when it has ended."""
        if os.getpid() == self._pid:
            with suppress(RuntimeError):
                self._loop.loop.call_soon_threadsafe(action)

    def _unusable(self) -> UsageError | None:
        if os.getpid() != self._pid:
            remedy = "open a Runtime in this process"
            return UsageError("the runtime belongs to the process that opened it", where="runtime", remedy=remedy)
        if self._closed:
            return UsageError("the runtime is closed", where="runtime", remedy="open it again")
        return None

    def _iterate(self, events: AsyncGenerator[Any, None]) -> Iterator[Any]:
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
