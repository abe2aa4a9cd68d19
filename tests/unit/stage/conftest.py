# SPDX-License-Identifier: Apache-2.0
"""A test driver for stages: one request's messages from lists, and tiny ONNX graphs through the real CPU backend."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_cpu.backend import CpuBackend

from dpfedge.backend.api import Budget, Executable, GraphView
from dpfedge.backend.onnx_graph import graph_ports
from dpfedge.binding.prefix import Candidate, PrefixFound, judge_prefixes
from dpfedge.stage.api import Kind, Mode, Steps, Wait
from dpfedge.tensors import TensorSpec


class DriverMessage:
    """A message that counts its releases."""

    def __init__(self, kind: Kind, payload: Any = None, *, turn: int = 1, last: bool = False) -> None:
        self.kind, self.turn, self.last, self.partial, self.captured_ns = kind, turn, last, False, 0
        self.port = ""
        self.released = 0
        self._payload = payload

    def array(self) -> Any:
        return self._payload

    def text(self) -> str:
        return "" if self._payload is None else str(self._payload)

    def map(self) -> Mapping[str, Any]:
        return dict(self._payload)

    def release(self) -> None:
        self.released += 1


class DriverSlot:
    """A loaned cell in ordinary memory."""

    def __init__(self, io: DriverIO, port: str, array: Any) -> None:
        self._io, self._port, self.array = io, port, array

    def publish(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0) -> None:
        self._io.note(self._port, kind, turn, self.array[:used].copy(), last=False)

    def send(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0, last: bool = False) -> None:
        self._io.note(self._port, kind, turn, self.array[:used].copy(), last=last)

    def abandon(self) -> None:
        self.array = None


class DriverIO:
    """One request over lists; `cancel_at` maps the number of messages sent to a function called once then."""

    key = 1
    inputs: frozenset[str] = frozenset()
    deadline_ns = 0
    urgency = 3

    def __init__(self, mode: Mode, options: Mapping[str, Any], ports: Iterable[str] = ("sink", "clauses")) -> None:
        self.mode, self.options, self.ports = mode, options, frozenset(ports)
        self.inbox: deque[DriverMessage] = deque()
        self.sent: list[tuple[str, Kind, int, Any, bool]] = []
        self.cancel_before = 0
        self.unread: list[int] = []
        self.on_sent: Callable[[DriverIO], None] = lambda io: None

    def put(self, kind: Kind, payload: Any = None, *, turn: int = 1, last: bool = False) -> DriverMessage:
        message = DriverMessage(kind, payload, turn=turn, last=last)
        self.inbox.append(message)
        return message

    def note(self, port: str, kind: Kind, turn: int, payload: Any, *, last: bool) -> None:
        self.sent.append((port, kind, turn, payload, last))
        self.on_sent(self)

    def of(self, kind: Kind, port: str = "sink", turn: int | None = None) -> list[Any]:
        """Payloads sent to `port`, in order."""
        return [row[3] for row in self.sent if row[:2] == (port, kind) and turn in (None, row[2])]

    def receive(self) -> DriverMessage | None:
        return self.inbox.popleft() if self.inbox else None

    def cancelled(self, turn: int) -> bool:
        return turn < self.cancel_before

    def has(self, port: str) -> bool:
        return port in self.ports

    def pending(self, port: str) -> int:
        return self.unread.pop(0) if self.unread else 0

    def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Generator[Wait, None, DriverSlot]:
        yield Wait.SPACE
        return DriverSlot(self, port, np.empty(shape, TensorSpec("slot", dtype).numpy))

    def try_loan(self, port: str, shape: tuple[int, ...], dtype: str) -> DriverSlot | None:
        return DriverSlot(self, port, np.empty(shape, TensorSpec("slot", dtype).numpy))

    def text(self, port: str, kind: Kind, text: str, *, turn: int, last: bool = False, captured_ns: int = 0) -> Steps:
        self.note(port, kind, turn, text, last=last)
        yield from ()

    def map(
        self, port: str, kind: Kind, data: Mapping[str, Any], *, turn: int, last: bool = False, captured_ns: int = 0
    ) -> Steps:
        self.note(port, kind, turn, dict(data), last=last)
        yield from ()


class ToyModel:
    """A bound model made of ONNX graphs in memory."""

    def __init__(
        self, name: str, graphs: Mapping[str, onnx.ModelProto], assets: Mapping[str, Any], config: Any = None
    ) -> None:
        self.name, self.family, self.config, self._graphs = name, "toy", config or {}, graphs
        self._assets = {
            key: item if isinstance(item, bytes) else json.dumps(item).encode() for key, item in assets.items()
        }
        self.graphs = tuple(graphs)
        self.assets = tuple(self._assets)
        self.prefixes: list[Candidate] = []

    def asset(self, name: str) -> memoryview:
        return memoryview(self._assets[name])

    def key(self) -> dict[str, str]:
        return {"weights": "toy"}

    def prefix(self, settings: Mapping[str, str] | None = None) -> PrefixFound:
        return judge_prefixes(self.name, self.prefixes, {**self.key(), **(settings or {})})

    def load(self, graph: str, budget: Budget) -> Executable:
        model = self._graphs[graph]
        inputs, outputs = graph_ports(model)
        backend = CpuBackend()
        view = GraphView(graph, model.SerializeToString(), inputs, outputs, {})
        return backend.load(view, backend.devices(Path("/"))[0], budget)


def drive(steps: Steps, io: DriverIO, limit: int = 10_000) -> list[Wait]:
    """Step a request until it ends or waits for input that is not there; the waits it yielded."""
    waits: list[Wait] = []
    for wait in steps:
        waits.append(wait)
        assert len(waits) < limit, "the request does not end"
        if wait is Wait.INPUT and not io.inbox:
            break
    return waits


@pytest.fixture(scope="session")
def driver() -> Any:
    """The driver's parts: `driver.IO`, `driver.Model`, `driver.drive`."""

    class Driver:
        IO, Model, Message = DriverIO, ToyModel, DriverMessage
        drive = staticmethod(drive)

    return Driver
