# SPDX-License-Identifier: Apache-2.0
"""The sink's thread finds the receiver of every message."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dpfedge.errors import LinkError
from dpfedge.pipeline.messages import LinkMessage, send_map
from dpfedge.pipeline.sink import Sink, _receive
from dpfedge.stage.api import Kind

STAGES = ("decoder", "encoder", "llm", "voice")


class Receiver:
    """Keeps what it is given until `free`."""

    def __init__(self, wanted: int) -> None:
        self.seen: list[tuple[str, Kind, bool]] = []
        self.messages: list[LinkMessage] = []
        self.done, self._wanted = threading.Event(), wanted

    def receive(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        assert at_ns > 0
        self.seen.append((stage, message.kind, scarce))
        self.messages.append(message)
        if len(self.seen) == self._wanted:
            self.done.set()

    def free(self) -> None:
        while self.messages:
            self.messages.pop().release()


@pytest.fixture
def sink(rig: Any) -> Iterator[Sink]:
    """A running sink."""
    one = Sink(rig.arena, [(name, "", f"{name}.sink") for name in STAGES], 77)
    one.start()
    yield one
    one.stop()


def test_message__reaches_its_request(rig: Any, sink: Sink) -> None:
    """By key, with the stage it came from."""
    one, other = Receiver(2), Receiver(1)
    sink.attach(1, one)
    sink.attach(2, other)
    producers = {name: rig.arena.producer(f"{name}.sink", 1) for name in STAGES}
    send_map(producers["llm"], 1, Kind.DONE, {})
    send_map(producers["voice"], 2, Kind.DONE, {})
    send_map(producers["llm"], 1, Kind.FAILED, {})

    assert one.done.wait(30)
    assert other.done.wait(30)
    assert [row[:2] for row in one.seen] == [("llm", Kind.DONE), ("llm", Kind.FAILED)]
    assert [row[:2] for row in other.seen] == [("voice", Kind.DONE)]


def test_message__of_nobody_is_released(rig: Any, sink: Sink) -> None:
    """A request that is gone holds no slot; the others go on."""
    last = Receiver(1)
    sink.attach(1, last)
    sink.attach(2, last)
    sink.detach(2)
    producer = rig.arena.producer("llm.sink", 1)
    for _ in range(3):
        send_map(producer, 2, Kind.DONE, {})
    send_map(producer, 1, Kind.DONE, {})

    assert last.done.wait(30)
    assert len(last.seen) == 1
    last.free()
    assert rig.held() == {}


def test_scarce__when_half_of_the_slots_are_in_use(rig: Any, sink: Sink) -> None:
    """A receiver that keeps messages is told before the link is full."""
    keeps = Receiver(4)
    sink.attach(1, keeps)
    producer = rig.arena.producer("voice.sink", 1)
    for _ in range(4):
        send_map(producer, 1, Kind.DONE, {})

    assert keeps.done.wait(30)
    assert [row[2] for row in keeps.seen] == [False, False, True, True]


def test_stop__before_start_and_twice(rig: Any) -> None:
    """An engine that failed to start stops its sink, too."""
    one = Sink(rig.arena, [(name, "", f"{name}.sink") for name in STAGES], 77)
    one.stop()
    one.stop()


def test_broken_message__is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """One overwritten slot does not end every request."""

    class Consumer:
        answers: tuple[Any, ...] = (LinkError("makes no sense"), "the next")

        def receive(self) -> Any:
            first, *rest = self.answers
            self.answers = tuple(rest)
            if isinstance(first, Exception):
                raise first
            return first

    with caplog.at_level(logging.ERROR):
        assert _receive("llm", Consumer()) == "the next"  # type: ignore[arg-type, comparison-overlap]
    assert "stage llm: makes no sense" in caplog.text
