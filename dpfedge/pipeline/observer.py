# SPDX-License-Identifier: Apache-2.0
"""What may be told of a runtime while it works: requests, turns, stages, and, to a tap, every message at its two ends.

A runtime that nobody observes calls nothing here. It records and prints nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dpfedge.link import Consumer, Descriptor, Lease, Loan, Producer
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from dpfedge.pipeline.plan import Plan

__all__ = ["Observe", "Observer", "Observers", "Tap", "tapped_consumer", "tapped_producer"]


class Tap(Protocol):
    """Told of every message; must return at once and raise nothing."""

    def sent(self, link: str, descriptor: Descriptor, payload: memoryview) -> None:
        """The source sent it; on the thread that sends. The payload is read before this returns."""

    def received(self, link: str, lease: Lease) -> None:
        """The sink received it; on the sink's thread. The lease is read before this returns."""


class Observer:
    """Told of one runtime, on its event loop; must return at once and raise nothing. As it stands it ignores all."""

    tap: Tap | None = None

    def opened(self, key: int, mode: Mode) -> None:
        """A request got its place."""

    def closed(self, key: int) -> None:
        """A request gave its place back."""

    def cancelled(self, key: int, before: int) -> None:
        """Every turn of a request below `before` was cancelled."""

    def ended(self, key: int, mode: Mode, event: TurnDone | Failed) -> None:
        """A turn (turn 0: a whole request) is complete, or failed."""

    def stage_ready(self, name: str) -> None:
        """A stage serves, for the first time or again."""

    def stage_died(self, name: str) -> None:
        """A stage's process ended."""

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        """Something else: of a stage, or (`stage` empty) of the pipeline. A map with `what`, `at_ns` and figures."""


Observe = Callable[["Plan"], Observer]
"""Makes the observer of a runtime; called once for each, before it starts, on any thread."""


class Observers(Observer):
    """Several observers as one; one of them may tap."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._all = tuple(observers)
        self.tap = next((one.tap for one in self._all if one.tap is not None), None)

    def opened(self, key: int, mode: Mode) -> None:
        """Tell every observer."""
        for one in self._all:
            one.opened(key, mode)

    def closed(self, key: int) -> None:
        """Tell every observer."""
        for one in self._all:
            one.closed(key)

    def cancelled(self, key: int, before: int) -> None:
        """Tell every observer."""
        for one in self._all:
            one.cancelled(key, before)

    def ended(self, key: int, mode: Mode, event: TurnDone | Failed) -> None:
        """Tell every observer."""
        for one in self._all:
            one.ended(key, mode, event)

    def stage_ready(self, name: str) -> None:
        """Tell every observer."""
        for one in self._all:
            one.stage_ready(name)

    def stage_died(self, name: str) -> None:
        """Tell every observer."""
        for one in self._all:
            one.stage_died(name)

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        """Tell every observer."""
        for one in self._all:
            one.happened(stage, event)


def tapped_producer(producer: Producer, tap: Tap | None) -> Producer:
    """A source's port that tells the tap of what it sends; the port itself without a tap."""
    return producer if tap is None else _TappedProducer(producer, tap)  # type: ignore[return-value]


def tapped_consumer(consumer: Consumer, tap: Tap | None) -> Consumer:
    """A sink's port that tells the tap of what it receives; the port itself without a tap."""
    return consumer if tap is None else _TappedConsumer(consumer, tap)  # type: ignore[return-value]


class _TappedProducer:
    def __init__(self, producer: Producer, tap: Tap) -> None:
        self._producer, self._tap, self._sent = producer, tap, 0
        self.link, self.slots, self.slot_bytes = producer.link, producer.slots, producer.slot_bytes
        self.loan = producer.loan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def send(
        self, loan: Loan, *, kind: int, request: int, turn: int = 0, dtype: int = 0, shape: tuple[int, ...] = (),
        nbytes: int, captured_ns: int = 0, deadline_ns: int = 0, urgency: int = 3, flags: int = 0,
    ) -> None:  # fmt: skip
        # told before it is sent: afterwards the slot is the consumer's
        a, b, c = (*shape, 0, 0, 0)[:3]
        place = (loan.slot, loan.generation, self._sent & 0xFFFF_FFFF, turn, 0, nbytes)
        told = Descriptor(request, captured_ns, deadline_ns, *place, (a, b, c), dtype, len(shape), urgency, kind, flags)
        self._tap.sent(self.link, told, loan.view[:nbytes])
        self._producer.send(
            loan, kind=kind, request=request, turn=turn, dtype=dtype, shape=shape, nbytes=nbytes,
            captured_ns=captured_ns, deadline_ns=deadline_ns, urgency=urgency, flags=flags,
        )  # fmt: skip
        self._sent += 1


class _TappedConsumer:
    def __init__(self, consumer: Consumer, tap: Tap) -> None:
        self._consumer, self._tap, self._link = consumer, tap, consumer.link
        self.slots = consumer.slots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def receive(self) -> Lease | None:
        lease = self._consumer.receive()
        if lease is not None:
            self._tap.received(self._link, lease)
        return lease
