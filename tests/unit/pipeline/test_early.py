# SPDX-License-Identifier: Apache-2.0
"""Graphs that load while something else is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.backend.api import Budget, Device, GraphView
from dpfedge.binding.bound import BoundModel
from dpfedge.errors import BackendError, Unsupported
from dpfedge.package.manifest import Graph
from dpfedge.pipeline.early import load_early

BUDGET = Budget(threads=2)
DEVICE = Device("cpu:0", "toy", "cpu.x86_64", "toy", "x86-64-v3", frozenset(), 1 << 30)


class Package:
    """Every section is empty."""

    def section(self, name: str) -> memoryview:
        return memoryview(b"")


class Backend:
    """Loads what it is given, when `gate` lets it."""

    name = "toy"

    def __init__(self, load: Callable[[GraphView], Any] | None = None) -> None:
        self.gate, self._load = threading.Event(), load
        self.loads: list[tuple[str, Budget]] = []
        self.gate.set()

    def load(self, graph: GraphView, device: Device, budget: Budget) -> Any:
        self.gate.wait()
        self.loads.append((graph.name, budget))
        return self._load(graph) if self._load else f"{graph.name} on {device.id}"


def model(backend: Backend) -> BoundModel:
    graphs = {name: Graph(name, (), (), (), {}) for name in ("encode", "decode")}
    return BoundModel("voice", "toy", {}, DEVICE, Package(), backend, {}, graphs)  # type: ignore[arg-type]


def test_load__was_begun_and_is_done_once() -> None:
    """Both graphs are loaded before they are asked for, each once."""
    backend = Backend()
    backend.gate.clear()
    early = load_early(model(backend), BUDGET)
    backend.gate.set()

    assert early.load("decode", BUDGET) == "voice/decode on cpu:0"
    assert early.load("encode", BUDGET) == "voice/encode on cpu:0"
    assert backend.loads == [("voice/encode", BUDGET), ("voice/decode", BUDGET)]


def test_load__again_or_with_another_budget_is_a_load_of_its_own() -> None:
    """What was loaded is given away once, and only for the budget it was loaded with."""
    backend = Backend()
    early = load_early(model(backend), BUDGET)
    early.load("encode", BUDGET)
    early.load("decode", BUDGET)

    early.load("encode", BUDGET)
    early.load("decode", Budget(threads=1))
    assert backend.loads[2:] == [("voice/encode", BUDGET), ("voice/decode", Budget(threads=1))]


def test_load__raises_what_loading_raised() -> None:
    """A graph that cannot be loaded is reported where it is asked for; the others are loaded."""

    def load(graph: GraphView) -> str:
        if graph.name == "voice/encode":
            raise Unsupported("no such operator", where=graph.name)
        return "good"

    early = load_early(model(Backend(load)), BUDGET)
    with pytest.raises(Unsupported, match="no such operator"):
        early.load("encode", BUDGET)
    assert early.load("decode", BUDGET) == "good"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_load__never_waits_for_a_thread_that_broke() -> None:
    """A bug in a backend ends the loading of every graph with an error."""

    def load(graph: GraphView) -> str:
        raise ZeroDivisionError

    early = load_early(model(Backend(load)), BUDGET)
    for name in ("decode", "encode"):
        with pytest.raises(BackendError, match=f"graph voice/{name}: loading ended with an unexpected error"):
            early.load(name, BUDGET)
    for thread in threading.enumerate():
        if thread.name == "dpf-load":
            thread.join()  # so that its traceback is this test's


def test_load__unknown_graph() -> None:
    """Everything but loading is the model's own."""
    early = load_early(model(Backend()), BUDGET)
    assert (early.graphs, early.name) == (("encode", "decode"), "voice")
    with pytest.raises(Exception, match="there is no such graph; found x; allowed encode, decode"):
        early.load("x", BUDGET)
