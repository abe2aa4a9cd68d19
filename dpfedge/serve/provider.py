# SPDX-License-Identifier: Apache-2.0
"""The runtime behind the faces while it warms up, works, is replaced and ends: who may use it, what to say when not.

It opens the runtime it is told to open and knows nothing of HTTP. When a runtime is replaced, whoever uses the old one
goes on with it; it ends when nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dpfedge.errors import DpfError
from dpfedge.records import dataclass
from dpfedge.serve.errors import NotReady, Stopping
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from dpfedge.serve.api import ServedRuntime, ServedSession
    from dpfedge.serve.instances import Instances

__all__ = ["Provider"]


@dataclass(slots=True)
class _Generation:
    """A runtime, and how many answers and sessions use it."""

    runtime: ServedRuntime
    users: int = 0
    unused: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def enter(self) -> None:
        self.users += 1
        self.unused.clear()

    def leave(self) -> None:
        self.users -= 1
        if not self.users:
            self.unused.set()


class Provider:
    """One runtime and its life: `start` → ready → (`replace` →) `stop` (streams are told to end) → `close`."""

    def __init__(self, name: str, launcher: Callable[[], Awaitable[ServedRuntime]]) -> None:
        self.created = int(time.time())
        self.ready_ns: int | None = None
        """From `start` to the moment every stage was warm."""
        self.stopping = asyncio.Event()
        """Set when no new work is taken; sessions end."""
        self.cut = asyncio.Event()
        """Set when running answers must end too."""
        self.active = 0
        self.replaced: set[Callable[[], None]] = set()
        """Called when the runtime was replaced; each returns at once."""
        self.instances: Instances | None = None
        """The devices behind the runtime, once it is warm; None: nobody looks at their health."""
        self._fallback_name, self._launcher = name, launcher
        self._current: _Generation | None = None
        self._sessions: dict[int, _Generation] = {}
        self._opening: asyncio.Task[None] | None = None
        self._ending: dict[asyncio.Task[None], _Generation] = {}
        self._started_ns = 0

    def start(self) -> asyncio.Task[None]:
        """Begin to open the runtime; the task ends when every stage is warm, or with the error that prevents it."""
        self._started_ns = time.monotonic_ns()
        self._opening = asyncio.ensure_future(self._open())
        return self._opening

    async def _open(self) -> None:
        self._current = _Generation(await self._launcher())
        await self._current.runtime.wait_ready()
        self.ready_ns = time.monotonic_ns() - self._started_ns

    @property
    def name(self) -> str:
        """The package's name; the file's until the package is open."""
        return self._current.runtime.name if self._current is not None else self._fallback_name

    @property
    def ready(self) -> bool:
        """Whether a request would be taken now."""
        return self.warm and not self.stopping.is_set() and (self.instances is None or self.instances.healthy)

    @property
    def warm(self) -> bool:
        """Whether every stage is warm now."""
        return self.ready_ns is not None and self._current is not None and self._current.runtime.ready

    @property
    def runtime(self) -> ServedRuntime:
        """The runtime; `NotReady` before every stage was warm once, `Stopping` when the server ends."""
        return self._usable().runtime

    def _usable(self) -> _Generation:
        if self.stopping.is_set():
            raise Stopping("the server is shutting down", where="server", remedy="send the request to another instance")
        if self.ready_ns is None or self._current is None:
            raise self._not_ready()
        return self._current

    def _not_ready(self) -> NotReady:
        rows = self._current.runtime.status()["stages"] if self._current is not None else {}
        late = ((name, row["state"]) for name, row in rows.items() if row["state"] != "ready")
        stage, state = next(late, (None, "starting"))
        return NotReady(f"not ready: {state}", stage=stage, remedy="poll /readyz and try again")

    async def status(self, *, memory: bool = True) -> Mapping[str, Any]:
        """The runtime's own status, read beside the event loop (memory figures take the kernel milliseconds)."""
        if self._current is None or self.cut.is_set():
            return {}
        if not memory:
            return self._current.runtime.status(memory=False)
        return await asyncio.to_thread(self._current.runtime.status)

    def admit(self, mode: Mode) -> str | None:
        """The instance that a new request goes to, None where nobody looks; NoInstance when no healthy one can."""
        return None if self.instances is None else self.instances.admit(mode)

    @contextlib.contextmanager
    def using(self) -> Iterator[ServedRuntime]:
        """The runtime for one answer; a stopping server waits for it until `cut`, a replaced runtime until its end."""
        generation = self._usable()
        with self.connected(), generation.use():
            yield generation.runtime

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """A client that uses runtimes one after another, by sessions; a stopping server waits for it until `cut`."""
        self._usable()
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1

    async def converse(self, *arguments: Any, **options: Any) -> ServedSession:
        """Open a session in the runtime; it uses this one until `end`."""
        generation = self._usable()
        self.admit(Mode.CONVERSE)
        generation.enter()
        try:
            session = await generation.runtime.converse(*arguments, **options)
        except BaseException:
            generation.leave()
            raise
        self._sessions[id(session)] = generation
        return session

    def outdated(self, session: ServedSession) -> bool:
        """Whether the session uses a runtime that was replaced: it should end at its next turn boundary."""
        return self._sessions.get(id(session), self._current) is not self._current

    async def end(self, session: ServedSession) -> None:
        """Close a session, also while the server ends; a second time does nothing."""
        generation = self._sessions.pop(id(session), None)
        if generation is not None:
            try:
                await generation.runtime.end(session)
            finally:
                generation.leave()

    @property
    def ending(self) -> int:
        """Answers and sessions that still use a runtime that was replaced."""
        return sum(generation.users for generation in self._ending.values())

    @property
    def replacing(self) -> bool:
        """Whether a runtime that was replaced has not ended yet."""
        return bool(self._ending)

    def replace(self, runtime: ServedRuntime) -> None:
        """Give every new answer and session to `runtime`, which is warm; the old one ends when nobody uses it."""
        old, self._current = self._usable(), _Generation(runtime)
        task = asyncio.ensure_future(self._end_unused(old))
        self._ending[task] = old
        task.add_done_callback(self._ending.pop)
        for tell in tuple(self.replaced):
            tell()

    async def _end_unused(self, old: _Generation) -> None:
        if old.users:
            await old.unused.wait()
        await old.runtime.close()

    async def stop(self, drain_s: float) -> None:
        """Take no new work, let running answers finish for `drain_s` seconds, then tell the rest to end."""
        self.stopping.set()
        deadline = time.monotonic() + drain_s
        while self.active and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        self.cut.set()

    async def close(self) -> None:
        """End every runtime, also one that is still opening, and those that somebody still uses."""
        if self._opening is not None:
            self._opening.cancel()  # one that failed is asked all the same: else its error is told as a forgotten one
            with contextlib.suppress(asyncio.CancelledError, DpfError):
                await self._opening
        for generation in self._ending.values():
            generation.unused.set()
        await asyncio.gather(*self._ending)
        if self._current is not None:
            await self._current.runtime.close()
