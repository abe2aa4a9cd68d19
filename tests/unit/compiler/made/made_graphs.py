# SPDX-License-Identifier: Apache-2.0
"""Lowers and loads an ONNX graph in one step, with its weights in one made-up section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.session import CpuExecutable

from dpfedge.backend.api import Budget, GraphView, LoweredGraph, LowerRequest

SECTION = "weights.test"


def lowered(model: onnx.ModelProto, *, features: frozenset[str] = frozenset(), arch: str = "x86-64-v3") -> LoweredGraph:
    """`model` as the CPU backend lowers it."""
    return CpuBackend().lower(LowerRequest("graph", model.SerializeToString(), arch, features))


def view(graph: LoweredGraph) -> GraphView:
    """A lowered graph as a package would show it."""
    data, places = bytearray(), {}
    for name, array in graph.weights.items():
        data += bytes(-len(data) % 64)
        places[name] = (SECTION, len(data), array.nbytes)
        data += array.tobytes()
    code = CpuBackend().finish(graph, places)
    weights = {SECTION: memoryview(bytes(data))} if data else {}
    return GraphView("graph", memoryview(code), graph.inputs, graph.outputs, weights)


def loaded(model: onnx.ModelProto, **options: Any) -> CpuExecutable:
    """`model`, lowered and loaded."""
    backend = CpuBackend()
    return backend.load(view(lowered(model, **options)), backend.devices(Path("/"))[0], Budget())


def relative(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> float:
    """Relative L2 difference."""
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
