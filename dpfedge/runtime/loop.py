# SPDX-License-Identifier: Apache-2.0
"""An event loop in a thread of its own: coroutines in from any thread, their results out; it knows no runtime."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from dpfedge.pipeline.events import Event

__all__ = ["LoopThread", "Pull"]

T = TypeVar("T")


class LoopThread:
    """Runs from its making to `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="dpf-loop", daemon=True)
        self._thread.start()

    def submit(self, awaitable: Awaitable[T]) -> Future[T]:
        """Run it on the loop; cancelling the future cancels it there."""
        coroutine = awaitable if isinstance(awaitable, Coroutine) else _await(awaitable)
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def is_current(self) -> bool:
        """Whether the caller is on the loop itself."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Cancel what still waits, then end loop and thread."""
        self.submit(_end_everything()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Pull:
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
