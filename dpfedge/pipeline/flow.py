# SPDX-License-Identifier: Apache-2.0
"""One request through a drawn graph: what the caller gives in, what every stage gives out, or one named error.

It owns a place in the request table while it lives. It knows no stage's domain: a conversation is `session.py`.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from dpfedge.backend.api import Array
from dpfedge.errors import Cancelled, DeadlineExceeded, DpfError, LinkError, StageError, UsageError, WouldBlock
from dpfedge.limits import BACKLOG_LEASES, EVENTS_MAX, FLOW_AGAIN_MAX_BYTES, FLOW_BACKLOG_MAX_BYTES
from dpfedge.pipeline.deadline import Deadline
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.pipeline.given import check_options, message_for, place_of
from dpfedge.pipeline.messages import LinkMessage
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.failure import rebuild

__all__ = ["Flow", "Output"]

_SPACE_WAIT_S = 0.002


@dataclass(frozen=True, slots=True)
class Output:
    """One message from a stage: of its `port`, or (an empty one) what it tells the caller, for example DONE.

    Its array is the link's memory: it ends with the next output, unless it is copied.
    """

    stage: str
    port: str
    kind: Kind
    turn: int
    captured_ns: int
    """CLOCK_MONOTONIC when the world was so; 0: not known."""
    at_ns: int
    """CLOCK_MONOTONIC when it arrived here."""
    _message: LinkMessage

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self._message.text()

    @property
    def map(self) -> Mapping[str, Any]:
        """The payload as a CBOR map."""
        return self._message.map()

    @property
    def array(self) -> Array:
        """The payload in place, read-only."""
        return self._message.array()


class Flow:
    """One request; made by `AsyncPipeline.request`. Use it from one event loop, as a context manager.

    A stage that dies is restarted by itself. The request is begun once more, when every stage may be given the same
    twice, nothing of it was given out yet, and what it was given is small enough to be kept; else it fails with
    StageDied, which names the stage.
    """

    def __init__(
        self,
        engine: Engine,
        options: Mapping[str, Mapping[str, Any]],
        *,
        deadline_s: float | None,
        urgency: int,
        closed: Callable[[int], object] = lambda key: None,
        opened: Callable[[int, Flow], object] = lambda key, flow: None,
    ) -> None:
        self._engine, self._options, self._urgency = engine, options, urgency
        self._observer = engine.observer
        self._on_opened, self._on_closed = opened, closed
        self._names = engine.check_up(Mode.RUN)
        check_options(engine.graph, options)
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[Output | BaseException | None] = asyncio.Queue()
        self._kept: list[Callable[..., None]] | None = [] if self._repeatable() else None
        self._kept_bytes = 0
        self._held: LinkMessage | None = None
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._finished: set[tuple[str, str]] = set()
        self._over = False
        self._error: BaseException | None = None
        self.report: dict[str, Mapping[str, Any]] = {}
        """Stage → its DONE, of those that are done."""
        self.again = 0
        """How often it was begun once more."""
        self.copies = 0
        """Outputs moved to memory of their own because they are read late."""
        self._backlog = 0
        self.late = 0
        """Messages that arrived when nobody waited for them any more."""
        self.key = 0
        self._expired: dict[str, DeadlineExceeded] = {}
        self._open()
        budget_ns = engine.graph.budgets.request_ns
        seconds = budget_ns / 1e9 if deadline_s is None and budget_ns else deadline_s
        self._clock = Deadline(seconds, lambda _: self._give_up())
        self.deadline_ns = self._clock.at_ns

    async def __aenter__(self) -> Flow:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def start(self) -> None:
        """Tell every stage; called once by the runtime."""
        async with self._sending:
            await self._starts()

    # --- what the caller gives ---

    async def send(
        self, port: str, data: str | bytes | Array | Mapping[str, Any], *, turn: int = 0, captured_ns: int = 0
    ) -> None:
        """One message into `stage.port`: bytes, a text, a map, or an array, which is written into the link at once.

        It waits for space. InputError when the port takes something else; of a request that has ended its error, or
        Cancelled when it has none.
        """
        place = place_of(self._engine.graph, port)
        given = message_for(self._engine.graph, port, data, turn, captured_ns)
        self._check_open()
        if place in self._finished:
            raise UsageError("the port was finished", where=port, remedy="send before finish()")
        self._keep(given)
        await self._put(partial(self._engine.send_to, place, data=given, turn=turn, captured_ns=captured_ns))

    async def flush(self, port: str | None = None) -> None:
        """Every stage gives out what it holds of this request, first to last, of no other. `port`: through that one."""
        for place in self._engine.graph.drawn.given if port is None else (place_of(self._engine.graph, port),):
            if place not in self._finished:
                await self._put(partial(self._engine.end_of, place, kind=Kind.FLUSH))

    async def finish(self, port: str | None = None) -> None:
        """Nothing more comes on `port`; without one, on any."""
        places = self._engine.graph.drawn.given if port is None else (place_of(self._engine.graph, port),)
        for place in places:
            if place not in self._finished:
                self._finished.add(place)
                try:
                    await self._put(partial(self._engine.end_of, place, kind=Kind.END))
                except asyncio.CancelledError:
                    self._finished.discard(place)  # it was not sent: who asks again shall not be told that it was
                    raise

    def cancel(self, *, before: int | None = None) -> None:
        """End the request in every stage; with `before`, only its turns below that, and it goes on."""
        if before is not None:
            self._engine.cancel_turns(self.key, before)
        elif not self._over:
            self._end(Cancelled("the request was cancelled", stage="runtime"))

    # --- what the caller gets ---

    async def outputs(self) -> AsyncIterator[Output]:
        """What the stages give out, until all are done; raises the request's error. A view ends with the next one.

        Begun again it goes on where it was left; behind the end there is nothing.
        """
        try:
            while (item := await self._items.get()) is not None:
                self._release()
                if isinstance(item, BaseException):
                    self._items.put_nowait(None)
                    raise item
                self._held = item._message
                self._read(item)
                yield item
            self._items.put_nowait(None)  # whoever reads beside this one, or asks again
        finally:
            self._release()

    def close(self) -> None:
        """End the request and give everything back; a second call does nothing."""
        self._end(None)
        self._release()
        while not self._items.empty():
            item = self._items.get_nowait()
            if isinstance(item, Output):
                item._message.release()
        self._items.put_nowait(None)  # whoever still waits

    # --- the engine's side ---

    def receive(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        """Pass a message on to the loop; called from the sink's thread. The link's slots bound what waits there."""
        with suppress(RuntimeError):  # the loop is closed, nobody can read any more
            self._loop.call_soon_threadsafe(self._take, stage, message, at_ns, scarce)
            return
        message.release()

    def stage_died(self, stage: str, error: DpfError) -> None:
        """Called on the loop when a stage's process died: once more from the beginning, or the request fails."""
        if self._over or stage not in self._names or stage in self.report:
            return
        if self._kept is None or self.again or self.report:
            self._end(error)
            return
        self.again += 1
        self._shut()
        self._open()
        self._spawn(self._repeat())

    def fail(self, error: DpfError) -> None:
        """Called on the loop when the request can go on no more."""
        self._end(error)

    def _take(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        try:
            self._taken(stage, message, at_ns, scarce)
        except LinkError as error:  # the stage said what nobody understands
            message.release()
            self._end(StageError(f"{error.where}: {error.what}", stage=stage, found=error.found))

    def _taken(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        if self._over:
            self.late += 1
            message.release()
        elif message.kind is Kind.FAILED:
            error = rebuild(message.map())
            message.release()
            self._failed(stage, error)
        elif message.kind is Kind.END or message.kind is Kind.FLUSH:
            message.release()
        elif self._items.qsize() >= EVENTS_MAX or self._backlog >= FLOW_BACKLOG_MAX_BYTES:
            message.release()
            self._end(StageError("nobody reads this request's outputs", stage=stage, remedy="iterate over outputs()"))
        else:
            if scarce or self._items.qsize() >= BACKLOG_LEASES:
                # a caller that reads slowly, or sends first, may not hold the link's slots against everybody else
                self.copies += 1
                self._backlog += message.nbytes
                message.keep()
            self._give(stage, message, at_ns)

    def _failed(self, stage: str, error: DpfError) -> None:
        """At a deadline every stage that is not done says so; the one that kept the others waiting is to be named."""
        if not isinstance(error, DeadlineExceeded) or not 0 < self.deadline_ns <= time.monotonic_ns():
            self._end(error)
            return
        self._expired[stage] = error
        if len(self._expired) + len(self.report) >= len(self._names):
            self._give_up()

    def _give(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        if message.kind is Kind.DONE and not message.port and message.turn == 0:  # of the whole request
            self.report[stage] = message.map()
        else:
            self._kept = None  # the caller would hear the beginning twice
        self._items.put_nowait(
            Output(stage, message.port, message.kind, message.turn, message.captured_ns, at_ns, message)
        )
        if len(self.report) == len(self._names):
            self._end(None)

    # --- its life ---

    def _open(self) -> None:
        self._urgency = self._engine.urgency(self._urgency)
        self.key = self._engine.open_request(self, self._urgency)
        if self._observer is not None:
            self._observer.opened(self.key, Mode.RUN)
        self._on_opened(self.key, self)

    def _give_up(self) -> None:
        """A stage that says nothing hangs, or is dead; else the first that was at work; else the first that waited."""
        silent = [name for name in self._names if name not in self.report and name not in self._expired]
        if silent:
            late = (time.monotonic_ns() - self.deadline_ns) / 1e6
            remedy = "allow more time, or ask for less"
            found = f"{late:.0f} ms late, and no word from it"
            self._end(DeadlineExceeded("the deadline has passed", stage=silent[0], found=found, remedy=remedy))
            return
        inputs = [self._expired[name] for name in self._names if name in self._expired]
        self._end(next((error for error in inputs if not error.waited), inputs[0]))

    def _shut(self) -> None:
        self._on_closed(self.key)
        self._engine.close_request(self.key)

    def _end(self, error: BaseException | None) -> None:
        if self._over:
            return
        self._over, self._error = True, error
        self._clock.stop()
        for task in self._tasks:
            task.cancel()
        self._tell(error)
        self._shut()
        self._items.put_nowait(None if error is None else copy.copy(error))

    def _tell(self, error: BaseException | None) -> None:
        if self._observer is None:
            return
        now = time.monotonic_ns()
        if isinstance(error, DpfError):
            self._observer.ended(self.key, Mode.RUN, Failed(0, now, error))
        elif len(self.report) == len(self._names):
            self._observer.ended(self.key, Mode.RUN, TurnDone(0, now, "stop", dict(self.report)))

    def _read(self, output: Output) -> None:
        if output._message.kept:
            self._backlog -= output._message.nbytes

    def _release(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    # --- sending ---

    async def _starts(self) -> None:
        common = {"mode": int(Mode.RUN), "route": list(self._names), "urgency": self._urgency}
        for name in self._names:
            options = {**self._options.get(name, {}), **common, "deadline_ns": self.deadline_ns}
            await self._when_space(partial(self._engine.send_start, name, self.key, options))

    async def _put(self, send: Callable[..., None]) -> None:
        self._check_open()
        kept, begun = self._kept, self.again
        if kept is not None:
            kept.append(send)
        try:
            async with self._sending:
                # begun once more meanwhile: `_repeat` does it
                await self._when_space(lambda: self._send(send) if begun == self.again else None)
        except asyncio.CancelledError:
            if kept is not None and begun == self.again:
                kept.remove(send)
            raise

    def _send(self, send: Callable[..., None]) -> None:
        send(key=self.key, deadline_ns=self.deadline_ns, urgency=self._urgency)

    async def _when_space(self, send: Callable[[], None]) -> None:
        while not self._over:
            try:
                return send()
            except WouldBlock:
                await asyncio.sleep(_SPACE_WAIT_S)
        raise self._why("the request ended before all of it was sent")

    async def _repeat(self) -> None:
        async with self._sending:
            await self._starts()
            for send in self._kept or ():
                await self._when_space(partial(self._send, send))

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), DpfError):
            self._end(error)

    # --- checks ---

    def _repeatable(self) -> bool:
        return all(node.kind.idempotent for node in self._engine.graph.stages)

    def _keep(self, data: Array | bytes) -> None:
        """Whether what was given can be given again: arrays are not kept, and texts up to a bound."""
        self._kept_bytes += len(data) if isinstance(data, bytes) else FLOW_AGAIN_MAX_BYTES + 1
        if self._kept_bytes > FLOW_AGAIN_MAX_BYTES:
            self._kept = None

    def _check_open(self) -> None:
        if self._over:
            raise self._why("the request has ended")

    def _why(self, otherwise: str) -> BaseException:
        # each time another one: what is raised holds its raiser's frames, and those hold this request
        return copy.copy(self._error) if self._error is not None else Cancelled(otherwise, stage="runtime")
