# SPDX-License-Identifier: Apache-2.0
"""A model on a backend as a package would bring it there: an ONNX model in, an executable out.

Weights lie in one section of mapped memory, as they do in a package; no file is written.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import onnx

from dpfedge.backend.api import Backend, Budget, Device, Executable, GraphView, LoweredGraph, LowerRequest

__all__ = ["SECTION", "load", "lowered", "view"]

SECTION = "weights.suite"
_ALIGN = 64


def lowered(
    backend: Backend, device: Device, model: onnx.ModelProto, options: Mapping[str, Any] | None = None
) -> LoweredGraph:
    """`model` lowered for the architecture and the features of `device`."""
    request = LowerRequest(
        model.graph.name, bytes(model.SerializeToString()), device.arch, device.features, options or {}
    )
    return backend.lower(request)


def view(backend: Backend, graph: LoweredGraph, name: str) -> GraphView:
    """A lowered graph as an opened package shows it."""
    places, size = {}, 0
    for key, array in graph.weights.items():
        size += -size % _ALIGN
        places[key] = (SECTION, size, array.nbytes)
        size += array.nbytes
    weights = {}
    if size:
        memory = memoryview(mmap.mmap(-1, size))
        for key, array in graph.weights.items():
            start = places[key][1]
            memory[start : start + array.nbytes] = array.reshape(-1).view("u1").data
        weights[SECTION] = memory.toreadonly()
    code = backend.finish(graph, places)
    return GraphView(name, memoryview(code), graph.inputs, graph.outputs, weights)


def load(backend: Backend, device: Device, model: onnx.ModelProto, budget: Budget | None = None) -> Executable:
    """`model`, lowered and loaded on `device`; it is called as its graph is."""
    graph = view(backend, lowered(backend, device, model), model.graph.name)
    return backend.load(graph, device, budget or Budget())
