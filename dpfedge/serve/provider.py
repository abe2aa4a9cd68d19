# SPDX-License-Identifier: Apache-2.0
"""The runtime behind the faces while it warms up, works and ends: who may use it, and what to say when nobody may.

It opens the runtime it is told to open and knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dpfedge.errors import DpfError
from dpfedge.serve.errors import NotReady, Stopping

if TYPE_CHECKING:
    from dpfedge.serve.api import ServedRuntime, ServedSession

__all__ = ["Provider"]


class Provider:
    """One runtime and its life: `start` → ready → `stop` (streams are told to end) → `close`."""

    def __init__(self, name: str, launcher: Callable[[], Awaitable[ServedRuntime]]) -> None:
        self.created = int(time.time())
        self.ready_ns: int | None = None
        """From `start` to the moment every stage was warm."""
        self.stopping = asyncio.Event()
        """Set when no new work is taken; sessions end."""
        self.cut = asyncio.Event()
        """Set when running answers must end too."""
        self.active = 0
        self._fallback_name, self._launcher = name, launcher
        self._runtime: ServedRuntime | None = None
        self._opening: asyncio.Task[None] | None = None
        self._started_ns = 0

    def start(self) -> asyncio.Task[None]:
        """Begin to open the runtime; the task ends when every stage is warm, or with the error that prevents it."""
        self._started_ns = time.monotonic_ns()
        self._opening = asyncio.ensure_future(self._open())
        return self._opening

    async def _open(self) -> None:
        self._runtime = await self._launcher()
        await self._runtime.wait_ready()
        self.ready_ns = time.monotonic_ns() - self._started_ns

    @property
    def name(self) -> str:
        """The package's name; the file's until the package is open."""
        return self._runtime.name if self._runtime is not None else self._fallback_name

    @property
    def ready(self) -> bool:
        """Whether a request would be taken now."""
        runtime = self._runtime
        return self.ready_ns is not None and runtime is not None and runtime.ready and not self.stopping.is_set()

    @property
    def runtime(self) -> ServedRuntime:
        """The runtime; `NotReady` before every stage was warm once, `Stopping` when the server ends."""
        if self.stopping.is_set():
            raise Stopping("the server is shutting down", where="server", remedy="send the request to another instance")
        if self.ready_ns is None or self._runtime is None:
            raise self._not_ready()
        return self._runtime

    def _not_ready(self) -> NotReady:
        rows = self._runtime.status()["stages"] if self._runtime is not None else {}
        late = ((name, row["state"]) for name, row in rows.items() if row["state"] != "ready")
        stage, state = next(late, (None, "starting"))
        return NotReady(f"not ready: {state}", stage=stage, remedy="poll /readyz and try again")

    async def status(self) -> Mapping[str, Any]:
        """The runtime's own status, read beside the event loop (memory figures take the kernel milliseconds)."""
        if self._runtime is None or self.cut.is_set():
            return {}
        return await asyncio.to_thread(self._runtime.status)

    @contextlib.contextmanager
    def using(self) -> Iterator[ServedRuntime]:
        """The runtime for one answer; a stopping server waits for it until `cut`."""
        runtime = self.runtime
        self.active += 1
        try:
            yield runtime
        finally:
            self.active -= 1

    async def end(self, session: ServedSession) -> None:
        """Close a session, also while the server ends."""
        if self._runtime is not None:
            await self._runtime.end(session)

    async def stop(self, drain_s: float) -> None:
        """Take no new work, let running answers finish for `drain_s` seconds, then tell the rest to end."""
        self.stopping.set()
        deadline = time.monotonic() + drain_s
        while self.active and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.cut.set()

    async def close(self) -> None:
        """End the runtime, also one that is still opening."""
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, DpfError):
                await self._opening
        if self._runtime is not None:
            await self._runtime.close()
