# SPDX-License-Identifier: Apache-2.0
"""A graph out of an opened package onto a device: its bytes read, its weights wrapped, its CPU segments loaded.

It compiles no program; the first run with a shape does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpfedge.backend.api import Budget, Device, Executable, GraphView
from dpfedge.errors import BackendError
from dpfedge_opencl import graph as graphs
from dpfedge_opencl import sealed
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.joining import Joiner
from dpfedge_opencl.library import spare_cache
from dpfedge_opencl.plan import Plan
from dpfedge_opencl.runtime import Runtime, open_runtime
from dpfedge_opencl.sealed import SEALED, Store
from dpfedge_opencl.specialise import specialise

__all__ = ["load", "load_on"]


def load(view: GraphView, device: Device, budget: Budget) -> OpenClExecutable:
    """The executable of `view` on `device`; BackendError names the graph."""
    store = _store(view)
    if store is not None:
        spare_cache()
    known = (None, None) if store is None else (store.memory, store.lanes)
    return load_on(view, open_runtime(device, *known), budget, store)


def load_on(
    view: GraphView, runtime: Runtime, budget: Budget, store: Store | None = None, joiner: Joiner | None = None
) -> OpenClExecutable:
    """The executable of `view` on a device that is open, with the programs of `store`; `joiner` joins its plans, else
    one that knows what the store does."""
    where = f"graph {view.name}"
    found = graphs.read(view.code, where)
    facts = runtime.facts if store is None else replace(runtime.facts, tuning=store.tuning)
    joins = Joiner(facts, () if store is None else store.joined) if joiner is None else joiner

    def planned(shapes: Mapping[str, tuple[int, ...]], shared: frozenset[tuple[str, str]]) -> Plan:
        return joins.plan(specialise(found, shapes, shared, facts))

    if store is not None:
        runtime.programs.add(store)
    weights = {name: np.frombuffer(section, np.uint8) for name, section in view.weights.items()}
    segments = [_segment(view, index, one, budget) for index, one in enumerate(found.segments)]
    return OpenClExecutable(Graph(view, planned, found.key, segments, weights, store), runtime, budget.urgency)


def _store(view: GraphView) -> Store | None:
    """The programs of the graph's seal. Damaged ones are no loss but of time: each is compared with its digest."""
    if (found := view.sealed.get(SEALED)) is None:
        return None
    try:
        return sealed.read(found.data, f"graph {view.name}")
    except BackendError:
        return None


def _segment(view: GraphView, index: int, segment: graphs.Segment, budget: Budget) -> Executable:
    from dpfedge_cpu import CpuBackend

    backend = CpuBackend()
    inner = GraphView(f"{view.name}#{index}", memoryview(segment.code), segment.inputs, segment.outputs, view.weights)
    return backend.load(inner, backend.devices(Path("/"))[0], budget)
