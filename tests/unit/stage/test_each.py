# SPDX-License-Identifier: Apache-2.0
"""The base of stages that treat one message at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.stage.api import Kind, Message, Mode, RequestIO, Steps
from dpfedge.stage.each import Each
from dpfedge.stage.ports import Port, Ports


class Echo(Each):
    """Says again what it hears, holding the last text back until it is flushed."""

    name = "echo"
    ports = Ports({"a": Port("bytes"), "b": Port("bytes")}, {"out": Port("bytes")})
    held = ""

    def each(self, io: RequestIO, message: Message) -> Steps:
        yield from io.text("out", Kind.DATA, message.text(), turn=message.turn)
        self.held = message.text()

    def flush(self, io: RequestIO) -> Steps:
        yield from io.text("out", Kind.DATA, f"held {self.held}", turn=0)

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        return {"loud": False}


class Count(Each):
    """Needs no input."""

    ports = Ports(outputs={"out": Port("bytes")})

    def produce(self, io: RequestIO) -> Steps:
        for number in range(3):
            yield from io.text("out", Kind.DATA, str(number), turn=0)


def _io(driver: Any, *inputs: str) -> Any:
    io = driver.IO(Mode.RUN, {}, ("sink", "out"))
    io.inputs = frozenset(inputs)
    return io


def _put(io: Any, port: str, kind: Kind, payload: Any = None) -> Any:
    message = io.put(kind, payload)
    message.port = port
    return message


def test_each__until_every_input_has_ended(driver: Any) -> None:
    """Each message once, released; then the end goes on and DONE counts."""
    io, stage = _io(driver, "a", "b"), Echo(None, {}, Budget())
    given = [_put(io, "a", Kind.DATA, "one"), _put(io, "a", Kind.END), _put(io, "b", Kind.DATA, "two")]
    steps = stage.request(io)

    driver.drive(steps, io)
    assert io.of(Kind.DATA, "out") == ["one", "two"]
    assert io.of(Kind.DONE) == []
    given.append(_put(io, "b", Kind.END))
    driver.drive(steps, io)

    assert [row[:2] for row in io.sent][-2:] == [("out", Kind.END), ("sink", Kind.DONE)]
    (done,) = io.of(Kind.DONE)
    assert (done["messages"], done["loud"]) == (2, False)
    assert [message.released for message in given] == [1, 1, 1, 1]


def test_flush__when_every_open_input_was_flushed(driver: Any) -> None:
    """What is held goes out first, then the flush goes on."""
    io = _io(driver, "a", "b")
    for port, kind, payload in (("a", Kind.DATA, "x"), ("a", Kind.FLUSH, None)):
        _put(io, port, kind, payload)
    steps = Echo(None, {}, Budget()).request(io)

    driver.drive(steps, io)
    assert io.of(Kind.FLUSH, "out") == []
    _put(io, "b", Kind.FLUSH)
    driver.drive(steps, io)

    assert [row[1] for row in io.sent] == [Kind.DATA, Kind.DATA, Kind.FLUSH]
    assert io.of(Kind.DATA, "out") == ["x", "held x"]


def test_each__may_be_a_plain_function(driver: Any) -> None:
    """Where nothing is sent there is nothing to wait for."""

    class Adds(Echo):
        total = 0

        def each(self, io: RequestIO, message: Message) -> Any:
            self.total += int(message.text())

        def flush(self, io: RequestIO) -> Any:
            self.total *= 10

        def finish(self, io: RequestIO) -> Any:
            self.total += 1

    io, stage = _io(driver, "a"), Adds(None, {}, Budget())
    for kind, payload in ((Kind.DATA, "1"), (Kind.DATA, "2"), (Kind.FLUSH, None), (Kind.END, None)):
        _put(io, "a", kind, payload)
    driver.drive(stage.request(io), io)
    assert stage.total == 31
    assert io.of(Kind.DONE) != []


def test_produce__of_a_stage_without_inputs(driver: Any) -> None:
    """What it makes, the end, DONE."""
    io = _io(driver)

    driver.drive(Count(None, {}, Budget()).request(io), io)

    assert io.of(Kind.DATA, "out") == ["0", "1", "2"]
    assert [row[1] for row in io.sent][-2:] == [Kind.END, Kind.DONE]


def test_each__of_a_cancelled_turn_is_only_released(driver: Any) -> None:
    """A message that nobody waits for costs nothing more."""
    io = _io(driver, "a", "b")
    io.cancel_before = 5
    message = _put(io, "a", Kind.DATA, "x")

    driver.drive(Echo(None, {}, Budget()).request(io), io)

    assert io.sent == []
    assert message.released == 1


def test_each__must_be_written(driver: Any) -> None:
    """A stage with inputs and without `each` says so at its first message."""
    io = _io(driver, "a")
    _put(io, "a", Kind.DATA, "x")

    with pytest.raises(NotImplementedError):
        driver.drive(Each(None, {}, Budget()).request(io), io)


def test_flush__that_comes_back_holds_nothing_up(driver: Any) -> None:
    """A link that leads back brings the flush again; what follows it there is treated, and the end is reached."""
    io, stage = _io(driver, "a"), Echo(None, {}, Budget())
    steps = stage.request(io)
    _put(io, "a", Kind.FLUSH)
    driver.drive(steps, io)
    for kind, payload in ((Kind.FLUSH, None), (Kind.DATA, "around"), (Kind.END, None)):
        _put(io, "b", kind, payload)
    driver.drive(steps, io)
    assert io.of(Kind.DATA, "out") == ["held ", "around"]
    _put(io, "a", Kind.END)
    driver.drive(steps, io)
    assert io.of(Kind.DONE) != []
    assert [row[1] for row in io.sent].count(Kind.FLUSH) == 1
