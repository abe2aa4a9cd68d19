# SPDX-License-Identifier: Apache-2.0
"""Runs one stage: leases from its incoming links in, generator steps, messages on its outgoing links out.

One thread, no lock: requests take turns at every `Wait`. It starts no process and loads no model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpfedge.errors import DpfError, WouldBlock
from dpfedge.link import Arena, Consumer, Lease, Producer
from dpfedge.pipeline.io import LinkIO
from dpfedge.pipeline.messages import LinkMessage, send_map
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode, Settles, Stage, Steps, Wait
from dpfedge.stage.failure import describe

__all__ = ["StageRunner"]


_SPACE_WAIT_NS = 5_000_000


@dataclass(slots=True)
class _Active:
    io: LinkIO
    steps: Steps
    wait: Wait = Wait.STEP
    told: int = -1
    """The turn whose cancel the generator has seen."""


class StageRunner:
    """Drives `stage` over `arena`; `owner` identifies this incarnation of its process on every link."""

    def __init__(self, stage: Stage, arena: Arena, owner: int, *, spin_ns: int = 0) -> None:
        self._stage, self._arena, self._spin_ns = stage, arena, spin_ns
        links = arena.links.values()
        self._source: Consumer = arena.consumer(f"source.{stage.name}", owner)
        self._inputs: list[Consumer] = [
            arena.consumer(link.name, owner)
            for link in links
            if link.consumer == stage.name and link.producer != "source"
        ]
        self._outputs: dict[str, Producer] = {
            link.consumer: arena.producer(link.name, owner) for link in links if link.producer == stage.name
        }
        self._bell = arena.bell(stage.name)
        self._active: dict[int, _Active] = {}
        self._early: dict[int, deque[LinkMessage]] = {}
        self._failures: deque[tuple[int, int, Mapping[str, Any]]] = deque()
        self._settling: Steps | None = stage.settle() if isinstance(stage, Settles) else None
        self._stopping = False

    def stop(self) -> None:
        """End `run` after the step in progress; callable from a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Serve until `stop`; a full outgoing link rings this stage's bell when a slot is free again."""
        while True:
            seen = self._bell.value()  # before everything that is looked at: what comes later ends the wait
            if self._stopping:
                return
            if self.turn_over() and not self._settle():
                self._bell.wait(seen, self._patience(), self._spin_ns)

    def _patience(self) -> int | None:
        """For ever, unless a request leaves slots to others: their release does not ring for it."""
        crowded = any(active.wait is Wait.SPACE for active in self._active.values())
        return _SPACE_WAIT_NS if crowded else None

    def _settle(self) -> bool:
        """One step of what the stage still prepares; False when there is none."""
        if self._settling is not None and next(self._settling, None) is None:
            self._settling = None
        return self._settling is not None

    def turn_over(self) -> bool:
        """Poll links and step every runnable request once; True when nothing is left to do now."""
        self._drain(self._source)
        for consumer in self._inputs:
            self._drain(consumer)
        self._drop_dead()
        self._flush_failures()
        for key in [key for key, active in self._active.items() if self._wants_step(active)]:
            self._step(key)
        return not any(self._runnable(active) for active in self._active.values())

    # --- messages ---

    def _drain(self, consumer: Consumer) -> None:
        while (lease := consumer.receive()) is not None:
            self._dispatch(lease, consumer is self._source)

    def _dispatch(self, lease: Lease, from_source: bool) -> None:
        if lease.kind == Kind.START:
            self._start(lease)
            return
        if lease.request not in self._active and not from_source:
            self._drain(self._source)  # START is always sent first, but on another link
        active = self._active.get(lease.request)
        if active is not None:
            active.io.inbox.append(LinkMessage(lease))
        elif from_source or not self._arena.requests.live(lease.request):
            lease.release()
        else:
            # a process before this one knew the request; its owner is about to start it here again
            self._early.setdefault(lease.request, deque()).append(LinkMessage(lease))

    def _start(self, lease: Lease) -> None:
        message = LinkMessage(lease)
        options = message.map()
        message.release()
        route = frozenset((*options["route"], "sink"))
        io = LinkIO(self._arena, self._outputs, lease.request, options, route)
        waiting = self._early.pop(lease.request, deque())
        if (old := self._active.pop(lease.request, None)) is not None:
            old.steps.close()
            waiting = old.io.inbox
        io.inbox.extend(waiting)
        self._active[lease.request] = _Active(io, self._begin(io))

    def _begin(self, io: LinkIO) -> Steps:
        # a stage may refuse a request before its first step; that is a failure of the request as any other
        yield from self._stage.request(io)

    def _drop_dead(self) -> None:
        live = self._arena.requests.live
        for key in [key for key in self._active if not live(key)]:
            self._end(self._active.pop(key))
        for key in [key for key in self._early if not live(key)]:
            _release(self._early.pop(key))

    # --- steps ---

    def _wants_step(self, active: _Active) -> bool:
        return active.wait is Wait.SPACE or self._runnable(active)

    def _runnable(self, active: _Active) -> bool:
        if active.wait is Wait.INPUT:
            return bool(active.io.inbox) or self._newly_cancelled(active)
        return active.wait is Wait.STEP

    def _newly_cancelled(self, active: _Active) -> bool:
        return active.told != active.io.turn and self._arena.requests.cancelled(active.io.key, active.io.turn)

    def _step(self, key: int) -> None:
        active = self._active[key]
        if self._newly_cancelled(active):
            active.told = active.io.turn
        try:
            active.wait = next(active.steps)
        except StopIteration:
            self._end(self._active.pop(key))
        except DpfError as error:
            self._fail(key, active, error)

    def _fail(self, key: int, active: _Active, error: DpfError) -> None:
        io = active.io
        self._failures.append((key, io.turn, describe(error, self._stage.name)))
        self._end(self._active.pop(key))
        if io.mode is Mode.CONVERSE:
            io.options = {**io.options, "turn": io.turn - io.turn % TURN_STRIDE}
            self._active[key] = _Active(io, self._begin(io), Wait.INPUT)
        self._flush_failures()

    def _flush_failures(self) -> None:
        while self._failures:
            key, turn, data = self._failures[0]
            try:
                if self._arena.requests.live(key):
                    send_map(self._outputs["sink"], key, Kind.FAILED, data, turn=turn, last=True)
            except WouldBlock:
                return
            self._failures.popleft()

    def _end(self, active: _Active) -> None:
        active.steps.close()
        _release(active.io.inbox)


def _release(messages: deque[LinkMessage]) -> None:
    while messages:
        messages.popleft().release()
