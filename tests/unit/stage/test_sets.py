# SPDX-License-Identifier: Apache-2.0
"""The base of stages whose inputs belong together in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import StageError
from dpfedge.stage.api import Kind, Message, Mode, RequestIO, Steps
from dpfedge.stage.join import Sync
from dpfedge.stage.ports import Port, Ports
from dpfedge.stage.sets import Sets

SYNC = Sync("frames", "latest")


class Fuse(Sets):
    """Says which messages it got together."""

    name = "fuse"
    ports = Ports({"frames": Port("u8"), "speech": Port("bytes")}, {"out": Port("bytes")})

    def together(self, io: RequestIO, found: Mapping[str, Message]) -> Steps:
        yield from io.text("out", Kind.DATA, " ".join(message.text() for message in found.values()), turn=0)

    def flush(self, io: RequestIO) -> Steps:
        yield from io.text("out", Kind.DATA, "flushed", turn=0)

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        return {"fused": True}


class Request:
    """One request of a stage, fed message by message."""

    def __init__(self, driver: Any, sync: Sync | None = SYNC) -> None:
        self.io = driver.IO(Mode.RUN, {}, ("sink", "out"))
        self.io.inputs = frozenset(("frames", "speech"))
        self.stage = Fuse(None, {}, Budget())
        self.stage.sync = sync
        self._driver, self._steps = driver, self.stage.request(self.io)
        self.given: list[Any] = []

    def put(self, port: str, payload: str = "", at: int = 0, kind: Kind = Kind.DATA) -> list[Any]:
        """Give one message; everything that was said so far."""
        message = self.io.put(kind, payload)
        message.port, message.captured_ns = port, at
        self.given.append(message)
        self._driver.drive(self._steps, self.io)
        return list(self.io.of(Kind.DATA, "out"))

    def end(self) -> dict[str, Any]:
        """End both inputs; the report."""
        for port in ("frames", "speech"):
            self.put(port, kind=Kind.END)
        [done] = self.io.of(Kind.DONE)
        return dict(done)


def test_sets__are_treated_in_the_leads_order_and_given_back(driver: Any) -> None:
    """What made no set is counted by port; every message is released once."""
    request = Request(driver)
    assert request.put("frames", "f1", 10) == []
    assert request.put("speech", "s1", 15) == []
    assert request.put("frames", "f2", 20) == ["f2 s1"]
    assert request.put("frames", "f3", 21) == ["f2 s1", "f3 s1"]
    request.put("speech", "s2", 99)

    assert request.end() == {"messages": 2, "dropped": {"frames": 1, "speech": 1}, "fused": True}
    assert [row[:2] for row in request.io.sent][-2:] == [("out", Kind.END), ("sink", Kind.DONE)]
    assert [message.released for message in request.given] == [1] * 7


def test_flush__goes_on_when_every_input_was_flushed(driver: Any) -> None:
    """Once for both."""
    request = Request(driver)
    request.put("frames", kind=Kind.FLUSH)
    assert request.io.of(Kind.FLUSH, "out") == []

    assert request.put("speech", kind=Kind.FLUSH) == ["flushed"]
    assert len(request.io.of(Kind.FLUSH, "out")) == 1


def test_message__of_a_cancelled_turn_is_given_back(driver: Any) -> None:
    """It is in no set."""
    request = Request(driver)
    request.io.cancel_before = 5
    request.put("speech", "s", 1)

    assert request.given[0].released == 1
    assert request.end()["dropped"] == {}


def test_time__that_goes_backwards_fails_the_request(driver: Any) -> None:
    """Stage, port and both times are named, and nothing is kept."""
    request = Request(driver)
    request.put("speech", "s1", 15)

    with pytest.raises(StageError, match="stage fuse: port speech: time went backwards; found 14 ns after 15 ns"):
        request.put("speech", "s2", 14)
    assert [message.released for message in request.given] == [1, 1]


def test_sync__must_be_said(driver: Any) -> None:
    """By the pipeline."""
    with pytest.raises(StageError, match="stage fuse: nobody says how its inputs belong together; add sync"):
        Request(driver, None).put("speech", "s1", 15)
