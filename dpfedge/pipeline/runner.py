# SPDX-License-Identifier: Apache-2.0
"""Runs one stage: leases from its incoming links in, generator steps, messages on its outgoing links out.

One thread, no lock: requests take turns at every `Wait`. It starts no process and loads no model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpfedge.errors import DpfError, WouldBlock
from dpfedge.link import Arena, Consumer, Lease, Producer
from dpfedge.pipeline.io import LinkIO, LinkMessage, send_map
from dpfedge.stage.api import Kind, Mode, Stage, Steps, Wait

__all__ = ["StageRunner"]

_SPACE_WAIT_NS = (
    2_000_000  # a consumer's release rings no bell on the producer's side, so a full link is looked at again
)


@dataclass(slots=True)
class _Active:
    io: LinkIO
    steps: Steps
    wait: Wait = Wait.STEP


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
        self._failures: list[tuple[int, int, Mapping[str, Any]]] = []
        self._stopping = False

    def stop(self) -> None:
        """End `run` after the step in progress; callable from a signal handler."""
        self._stopping = True
        self._bell.ring()

    def run(self) -> None:
        """Serve until `stop`."""
        seen = self._bell.value()
        while not self._stopping:
            if self.turn_over():
                seen = self._bell.value()
                if self._poll() == 0 and not self._runnable():
                    timeout = _SPACE_WAIT_NS if self._blocked() else None
                    seen = self._bell.wait(seen, timeout, self._spin_ns)

    def turn_over(self) -> bool:
        """Poll links and step every runnable request once; True when nothing is left to do now."""
        self._poll()
        self._drop_dead()
        self._flush_failures()
        for key in [key for key, active in self._active.items() if self._wants_step(active)]:
            self._step(key)
        return not self._runnable()

    def _poll(self) -> int:
        count = self._drain(self._source)
        for consumer in self._inputs:
            count += self._drain(consumer)
        return count

    def _drain(self, consumer: Consumer) -> int:
        count = 0
        while (lease := consumer.receive()) is not None:
            count += 1
            self._dispatch(lease)
        return count

    def _dispatch(self, lease: Lease) -> None:
        if lease.kind == Kind.START:
            self._start(lease)
            return
        if lease.request not in self._active and self._arena.requests.live(lease.request):
            self._drain(self._source)  # START is always sent first, but on another link
        active = self._active.get(lease.request)
        if active is None:
            lease.release()
            return
        active.io.inbox.append(LinkMessage(lease))

    def _start(self, lease: Lease) -> None:
        message = LinkMessage(lease)
        options = message.map()
        message.release()
        route = frozenset((*options["route"], "sink"))
        old = self._active.pop(lease.request, None)
        if old is not None:
            self._end(old)
        io = LinkIO(self._arena, self._outputs, lease.request, options, route)
        self._active[lease.request] = _Active(io, self._stage.request(io))

    def _drop_dead(self) -> None:
        live = self._arena.requests.live
        for key in [key for key in self._active if not live(key)]:
            self._end(self._active.pop(key))

    def _wants_step(self, active: _Active) -> bool:
        return active.wait is not Wait.INPUT or bool(active.io.inbox)

    def _runnable(self) -> bool:
        return any(
            active.wait is Wait.STEP or (active.wait is Wait.INPUT and active.io.inbox)
            for active in self._active.values()
        )

    def _blocked(self) -> bool:
        return bool(self._failures) or any(active.wait is Wait.SPACE for active in self._active.values())

    def _step(self, key: int) -> None:
        active = self._active[key]
        try:
            active.wait = next(active.steps)
        except StopIteration:
            self._end(self._active.pop(key))
        except DpfError as error:
            self._fail(key, active, error)

    def _fail(self, key: int, active: _Active, error: DpfError) -> None:
        self._failures.append((key, active.io.turn, describe(error, self._stage.name)))
        self._end(self._active.pop(key))
        if active.io.mode is Mode.CONVERSE:
            io = active.io
            self._active[key] = _Active(io, self._stage.request(io), Wait.INPUT)
        self._flush_failures()

    def _flush_failures(self) -> None:
        while self._failures:
            key, turn, data = self._failures[0]
            try:
                send_map(self._outputs["sink"], key, Kind.FAILED, data, turn=turn, last=True)
            except WouldBlock:
                return
            self._failures.pop(0)

    def _end(self, active: _Active) -> None:
        active.steps.close()
        while active.io.inbox:
            active.io.inbox.popleft().release()


def describe(error: DpfError, stage: str) -> dict[str, Any]:
    """An error as the plain map that travels to the sink."""
    return {
        "stage": stage,
        "type": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "found": None if error.found is None else str(error.found),
        "allowed": None if error.allowed is None else str(error.allowed),
        "remedy": error.remedy,
    }
