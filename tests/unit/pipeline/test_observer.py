# SPDX-License-Identifier: Apache-2.0
"""Who is told of messages and turns, and that nobody is asked where nobody looks."""

from __future__ import annotations

from typing import Any

from dpfedge.link import Descriptor, Lease
from dpfedge.pipeline.events import TurnDone
from dpfedge.pipeline.messages import send_map, send_text
from dpfedge.pipeline.observer import Observer, Observers, tapped_consumer, tapped_producer
from dpfedge.stage.api import Kind, Mode


class Notes:
    """A tap that keeps everything."""

    def __init__(self) -> None:
        self.out: list[tuple[str, Descriptor, bytes]] = []
        self.back: list[tuple[str, int, bytes]] = []

    def sent(self, link: str, descriptor: Descriptor, payload: memoryview) -> None:
        self.out.append((link, descriptor, bytes(payload)))

    def received(self, link: str, lease: Lease) -> None:
        self.back.append((link, lease.sequence, bytes(lease.view)))


class Told(Observer):
    """Keeps the names of what it is told."""

    def __init__(self, tap: Any = None) -> None:
        self.names: list[str] = []
        self.tap = tap

    def opened(self, key: int, mode: Mode) -> None:
        self.names.append(f"opened {key}")

    def closed(self, key: int) -> None:
        self.names.append(f"closed {key}")

    def cancelled(self, key: int, before: int) -> None:
        self.names.append(f"cancelled {key} {before}")

    def ended(self, key: int, mode: Mode, event: Any) -> None:
        self.names.append(f"ended {event.turn}")

    def stage_ready(self, name: str) -> None:
        self.names.append(f"ready {name}")

    def stage_died(self, name: str) -> None:
        self.names.append(f"died {name}")

    def happened(self, stage: str, event: Any) -> None:
        self.names.append(f"{stage} {event['what']}")


def test_ports__are_their_own_without_a_tap(rig: Any) -> None:
    """So a message costs nothing more."""
    producer, consumer = rig.producer("source.llm"), rig.consumer("llm.sink")
    assert tapped_producer(producer, None) is producer
    assert tapped_consumer(consumer, None) is consumer


def test_tap__sees_the_descriptor_and_the_payload_of_what_is_sent(rig: Any) -> None:
    """As the other side receives it; the port is used as before."""
    notes = Notes()
    producer = tapped_producer(rig.producer("source.llm"), notes)
    key = rig.arena.requests.open()
    send_map(producer, key, Kind.START, {"mode": 1})
    send_text(producer, key, Kind.TEXT, "hello", turn=3, last=True)

    assert (producer.depth, producer.live, producer.owner) == (2, 0, 1000)
    for (link, told, payload), data in zip(notes.out, (b"\xa1dmode\x01", b"hello"), strict=True):
        with rig.lease("source.llm") as lease:
            assert (link, payload, bytes(lease.view)) == ("source.llm", data, data)
            for name in ("request", "turn", "kind", "flags", "nbytes", "slot", "generation", "sequence", "urgency"):
                assert getattr(told, name) == getattr(lease, name), name
    assert rig.held() == {}


def test_tap__sees_what_is_received(rig: Any) -> None:
    """Before whoever receives; an empty link is nothing."""
    notes = Notes()
    consumer = tapped_consumer(rig.consumer("llm.sink"), notes)
    assert consumer.receive() is None
    rig.send("llm.sink", 5, Kind.DONE, {"a": 1})
    with consumer.receive() as lease:  # type: ignore[union-attr]
        assert notes.back == [("llm.sink", lease.sequence, bytes(lease.view))]
        assert consumer.live == 1


def test_observers__are_all_told() -> None:
    """The one that taps is found."""
    tap = Notes()
    one, other = Told(), Told(tap)
    both = Observers([one, other])
    both.opened(1, Mode.CHAT)
    both.cancelled(1, 5)
    both.ended(1, Mode.CHAT, TurnDone(2, 0, "stop"))
    both.closed(1)
    both.stage_died("llm")
    both.stage_ready("llm")
    both.happened("llm", {"what": "replaced", "at_ns": 1})

    assert both.tap is tap
    assert one.names == other.names
    assert one.names == ["opened 1", "cancelled 1 5", "ended 2", "closed 1", "died llm", "ready llm", "llm replaced"]


def test_observer__as_it_stands_ignores_everything() -> None:
    """Nothing is asked of it."""
    quiet = Observer()
    quiet.opened(1, Mode.CHAT)
    quiet.cancelled(1, 2)
    quiet.ended(1, Mode.CHAT, TurnDone(1, 0, "stop"))
    quiet.closed(1)
    quiet.stage_ready("llm")
    quiet.stage_died("llm")
    assert quiet.tap is None
