# SPDX-License-Identifier: Apache-2.0
"""A graph loaded on an OpenCL device: its weights wrapped in place, its plans per set of shapes, its CPU segments.

Calls are `binding.py`; what a plan is comes from `specialise`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dpfedge.backend.api import Array, Executable, GraphView
from dpfedge.errors import BackendError
from dpfedge_opencl.binding import OpenClBinding
from dpfedge_opencl.memory import Span
from dpfedge_opencl.plan import Plan
from dpfedge_opencl.runtime import Runtime
from dpfedge_opencl.sealed import Store

__all__ = ["Graph", "OpenClExecutable", "Planned"]

_PLANS = 64
"""Plans kept per executable; a graph whose shapes grow with every step uses each once."""

Shapes = Mapping[str, tuple[int, ...]]


class Planned(Protocol):
    """What makes a graph concrete."""

    def __call__(self, shapes: Shapes, shared: frozenset[tuple[str, str]]) -> Plan:
        """The plan for input shapes and (output, input) pairs that are one memory."""


@dataclass(frozen=True)
class Graph:
    """A graph as the runtime sees it."""

    view: GraphView
    planned: Planned
    key: Callable[[Shapes, frozenset[tuple[str, str]]], Hashable] = lambda shapes, shared: (
        tuple(shapes.values()),
        shared,
    )
    """What of the shapes a plan depends on."""
    segments: Sequence[Executable] = ()
    """The parts of it that the CPU plugin loaded."""
    weights: Mapping[str, Array] = field(default_factory=dict)
    """Section → its bytes as the package maps them."""
    store: Store | None = None
    """Programs out of the package's seal, while the graph is loaded."""


class OpenClExecutable:
    """A graph ready to run; several bindings of it may run at once."""

    def __init__(self, graph: Graph, runtime: Runtime, urgency: int = 3) -> None:
        view = graph.view
        self.name, self.inputs, self.outputs = view.name, view.inputs, view.outputs
        self.where = f"graph {view.name}"
        self.runtime, self.urgency = runtime, urgency
        self._graph: Graph | None = graph
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._idle: list[OpenClBinding] = []
        self.weights: dict[str, Span] = {
            name: runtime.memory.wrap(section, write=False) for name, section in graph.weights.items()
        }

    @property
    def graph(self) -> Graph:
        """The loaded graph; BackendError after `close`."""
        if self._graph is None:
            raise BackendError("the executable is closed", where=self.where)
        return self._graph

    def plan(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """The plan kept under `key`, else the one that `make` gives."""
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                found = self._plans[key] = make()
                if len(self._plans) > _PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(key)
            return found

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run with every output in new memory."""
        _ = self.graph
        try:
            binding = self._idle.pop()
        except IndexError:
            binding = self.bind()
        found = binding.run_once(feeds)
        self._idle.append(binding)
        return found

    def bind(self) -> OpenClBinding:
        """A new prepared call."""
        _ = self.graph
        return OpenClBinding(self)

    def close(self) -> None:
        """Give memory back: weights are unwrapped, plans and idle calls end."""
        if self._graph is not None:
            for segment in self._graph.segments:
                segment.close()
            if self._graph.store is not None:
                self.runtime.programs.remove(self._graph.store)
        self._graph = None
        self._idle.clear()
        self.weights = {}
        with self._lock:
            self._plans.clear()
