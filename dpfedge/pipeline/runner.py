# SPDX-License-Identifier: Apache-2.0
"""Runs one stage: leases from its incoming links in, generator steps, messages on its outgoing links out.

One thread, no lock: requests take turns at every `Wait`, the most urgent first. It starts no process, loads no model.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from dpfedge.errors import DeadlineExceeded, DpfError, RunCancelled, StageError, WouldBlock
from dpfedge.link import Arena, Consumer, Lease, Producer
from dpfedge.pipeline.calls import Calls
from dpfedge.pipeline.io import LinkIO
from dpfedge.pipeline.messages import LinkMessage, send_map
from dpfedge.pipeline.newest import sparing
from dpfedge.pipeline.stage_record import Wiring
from dpfedge.records import dataclass
from dpfedge.stage.api import TURN_STRIDE, Adjusts, Kind, Mode, Settles, Stage, Steps, Wait
from dpfedge.stage.each import Each
from dpfedge.stage.failure import describe

__all__ = ["StageRunner"]

_SPACE_WAIT_NS = 5_000_000
_STARVED_AFTER, _LEAST = 16, 7
_EVERY_TURN = 0xFFFF_FFFE  # cancelled only when the whole request is
Report = Callable[[Mapping[str, Any]], None]


@dataclass(slots=True)
class _Active:
    io: LinkIO
    steps: Steps
    wait: Wait = Wait.STEP
    told: int = -1
    """The turn whose cancel the generator has seen."""


class StageRunner:
    """Drives `stage`, called `name` in its pipeline, over `arena`; `owner` is this incarnation of its process there.

    A step longer than `budget_ns` is told to `report`, at most once a second; so is a setting that was refused.
    """

    def __init__(
        self,
        stage: Stage,
        name: str,
        wiring: Wiring,
        arena: Arena,
        owner: int,
        *,
        spin_ns: int = 0,
        budget_ns: int = 0,
        report: Report = lambda event: None,
        calls: Calls | None = None,
    ) -> None:
        self._calls = calls
        self._stage, self._name, self._arena, self._spin_ns = stage, name, arena, spin_ns
        self._budget_ns, self._report, self._reported_ns = budget_ns, report, 0
        self._source: Consumer = arena.consumer(f"source.{name}", owner)
        self._inputs = [(arena.consumer(link, owner, name), port) for link, port in wiring.inputs.items()]
        self._awaited = frozenset(wiring.inputs.values()) - wiring.delayed
        self._failing, self._ports = wiring.failing, stage.declared().outputs if isinstance(stage, Each) else {}
        links = arena.links
        self._outputs: dict[str, Producer] = {
            port: sparing(arena, arena.producer(link, owner))
            for port, link in {**wiring.outputs, "sink": f"{name}.sink"}.items()
        }
        self._leads = {port: frozenset(links[producer.link].consumers) for port, producer in self._outputs.items()}
        self._bell = arena.bell(name)
        self._active: dict[int, _Active] = {}
        self._early: dict[int, deque[LinkMessage]] = {}
        self._over: set[int] = set()
        """Open requests whose part here has ended: what a link that leads back still brings is nobody's."""
        self._failures: deque[tuple[int, int, Mapping[str, Any]]] = deque()
        self._settling: Steps | None = stage.settle() if isinstance(stage, Settles) else None
        self._stopping = False
        self.step_since_ns = 0
        """When the step in progress began (CLOCK_MONOTONIC), 0 between steps; for who watches from another thread."""
        self._turns = 0

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
        """For ever, unless a request has a deadline, or leaves slots to others: their release does not ring for it."""
        if any(active.wait is Wait.SPACE for active in self._active.values()):
            return _SPACE_WAIT_NS
        deadlines = [active.io.deadline_ns for active in self._active.values() if active.io.deadline_ns]
        return max(0, min(deadlines) - time.monotonic_ns()) if deadlines else None

    def _settle(self) -> bool:
        """One step of what the stage still prepares; False when there is none."""
        if self._settling is not None and next(self._settling, None) is None:
            self._settling = None
        return self._settling is not None

    def turn_over(self) -> bool:
        """Poll links and step the most urgent requests once; True when nothing is left to do now."""
        self._drain(self._source)
        for consumer, port in self._inputs:
            self._drain(consumer, port)
        self._drop_dead()
        self._flush_failures()
        for key in self._next():
            self._step(key)
        return not any(self._runnable(active) for active in self._active.values())

    # --- messages ---

    def _drain(self, consumer: Consumer, port: str = "") -> None:
        while (lease := consumer.receive()) is not None:
            self._dispatch(lease, port, consumer is self._source)

    def _dispatch(self, lease: Lease, port: str, from_source: bool) -> None:
        if from_source and lease.kind == Kind.START:
            self._start(lease)
            return
        if from_source and lease.kind == Kind.SETTINGS:
            self._adjust(lease)
            return
        if lease.request not in self._active and not from_source:
            self._drain(self._source)  # START is always sent first, but on another link
        active = self._active.get(lease.request)
        if active is not None:
            active.io.inbox.append(LinkMessage(lease, port))
        elif from_source or lease.request in self._over or not self._arena.requests.live(lease.request):
            lease.release()
        else:
            # a process before this one knew the request; its owner is about to start it here again
            self._early.setdefault(lease.request, deque()).append(LinkMessage(lease, port))

    def _start(self, lease: Lease) -> None:
        message = LinkMessage(lease)
        options = message.map()
        message.release()
        route = frozenset((*options["route"], "sink"))
        outputs = {port: producer for port, producer in self._outputs.items() if self._leads[port] <= route}
        io = LinkIO(self._arena, outputs, lease.request, options, self._awaited, self._failing, self._ports)
        waiting = self._early.pop(lease.request, deque())
        if (old := self._active.pop(lease.request, None)) is not None:
            old.steps.close()
            waiting = old.io.inbox
        io.inbox.extend(waiting)
        self._over.discard(lease.request)
        self._active[lease.request] = _Active(io, self._begin(io))

    def _begin(self, io: LinkIO) -> Steps:
        # a stage may refuse a request before its first step; that is a failure of the request as any other
        yield from self._stage.request(io)

    def _adjust(self, lease: Lease) -> None:
        message = LinkMessage(lease)
        settings = message.map()
        message.release()
        try:
            if isinstance(self._stage, Adjusts):
                self._stage.adjust(settings)
                return
        except DpfError as error:
            self._report({"what": "settings refused", "settings": dict(settings), **describe(error, self._name)})
            return
        self._report({"what": "settings refused", "settings": dict(settings), "found": "a stage that cannot change"})

    def _drop_dead(self) -> None:
        live = self._arena.requests.live
        for key in [key for key in self._active if not live(key)]:
            self._end(self._active.pop(key))
        for key in [key for key in self._early if not live(key)]:
            _release(self._early.pop(key))
        self._over = {key for key in self._over if live(key)}

    # --- steps ---

    def _next(self) -> list[int]:
        """The most urgent of those that want a step, and those that end, or only look for space.

        The others get one step in `_STARVED_AFTER`: what an urgent one waits for may be theirs to give back.
        """
        wanting = {key: active for key, active in self._active.items() if self._wants_step(active)}
        if len(wanting) < 2:
            return list(wanting)
        at_work = [active.io.urgency for active in wanting.values() if active.wait is not Wait.SPACE]
        first, self._turns = min(at_work, default=0), self._turns + 1
        if self._turns % _STARVED_AFTER == 0:
            first = _LEAST
        chosen = [key for key, active in wanting.items() if active.io.urgency <= first or self._cheap(active)]
        return sorted(chosen, key=lambda key: wanting[key].io.urgency)

    def _cheap(self, active: _Active) -> bool:
        return active.wait is Wait.SPACE or _expired(active) or self._newly_cancelled(active)

    def _wants_step(self, active: _Active) -> bool:
        return active.wait is Wait.SPACE or self._runnable(active)

    def _runnable(self, active: _Active) -> bool:
        if active.wait is Wait.INPUT:
            return bool(active.io.inbox) or self._newly_cancelled(active) or _expired(active)
        return active.wait is Wait.STEP

    def _newly_cancelled(self, active: _Active) -> bool:
        return active.told != active.io.turn and self._arena.requests.cancelled(active.io.key, active.io.turn)

    def _step(self, key: int) -> None:
        active = self._active[key]
        if self._newly_cancelled(active):
            active.told = active.io.turn
        started = self.step_since_ns = time.monotonic_ns()
        if self._calls is not None:
            self._calls.work = active.io
        try:
            _check_deadline(active, started)
            active.wait = _reason(next(active.steps))
        except StopIteration:
            self._over.add(key)
            self._end(self._active.pop(key))
            if active.io.mode is Mode.RUN and not active.io.done:
                self._failed(active.io, _silent())
        except RunCancelled as error:
            self._ended_short(key, active, error)
        except DpfError as error:
            self._fail(key, active, error)
        finally:
            self.step_since_ns = 0
            if self._calls is not None:
                self._calls.work = None
        if self._budget_ns and (took := time.monotonic_ns() - started) > self._budget_ns:
            self._over_budget(key, started, took)

    def _ended_short(self, key: int, active: _Active, error: DpfError) -> None:
        """A run was ended and the stage had nothing to say about it: nobody waits for the request, or not so long."""
        if self._arena.requests.cancelled(key, _EVERY_TURN):
            self._over.add(key)
            self._end(self._active.pop(key))
            return
        try:
            _check_deadline(active, time.monotonic_ns())
        except DeadlineExceeded as late:
            error = late
        self._fail(key, active, error)

    def _over_budget(self, key: int, started: int, took: int) -> None:
        if started - self._reported_ns >= 1_000_000_000:
            self._reported_ns = started
            figures = {"step_ms": round(took / 1e6, 3), "budget_ms": self._budget_ns / 1e6}
            self._report({"what": "over budget", "request": key, **figures})

    def _fail(self, key: int, active: _Active, error: DpfError) -> None:
        io = active.io
        self._end(self._active.pop(key))
        if io.mode is Mode.CONVERSE and not isinstance(error, DeadlineExceeded):
            io.options = {**io.options, "turn": io.turn - io.turn % TURN_STRIDE}
            self._active[key] = _Active(io, self._begin(io), Wait.INPUT)
        else:
            self._over.add(key)
        self._failed(io, error)

    def _failed(self, io: LinkIO, error: DpfError) -> None:
        data, here = describe(error, self._name), f"stage {self._name}"
        if io.mode is Mode.RUN and here not in (data["where"] or here):
            data["where"] = f"{here}, {data['where']}"
        self._failures.append((io.key, io.turn, data))
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


def _expired(active: _Active) -> bool:
    return 0 < active.io.deadline_ns <= time.monotonic_ns()


def _check_deadline(active: _Active, now: int) -> None:
    late = now - active.io.deadline_ns
    if active.io.deadline_ns and late >= 0:
        waited = active.wait is Wait.INPUT and not active.io.inbox
        found = f"{late / 1e6:.1f} ms late" + (", it waited for input" if waited else "")
        remedy = "allow more time, or ask for less"
        raise DeadlineExceeded("the deadline has passed", waited=waited, found=found, remedy=remedy)


def _reason(wait: object) -> Wait:
    if isinstance(wait, Wait):
        return wait
    allowed = ", ".join(map(str, Wait))
    raise StageError("the stage does not say why it waits", found=f"yield {wait!r}", allowed=f"yield {allowed}")


def _silent() -> StageError:
    remedy = "send DONE of turn 0 last, or derive the class from Each, which does"
    return StageError("the stage ended the request without saying that it is done", remedy=remedy)


def _release(messages: deque[LinkMessage]) -> None:
    while messages:
        messages.popleft().release()
