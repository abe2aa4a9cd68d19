# SPDX-License-Identifier: Apache-2.0
"""A model on a backend as a package would bring it there: an ONNX model in, an executable out.

Weights lie in one section of a file mapped read-only, as they do in a package; so does what is sealed.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from dpfedge.backend.api import (
    Array,
    Backend,
    Budget,
    Device,
    Executable,
    GraphView,
    LoweredGraph,
    LowerRequest,
    SealedView,
    sealing,
)

__all__ = ["SECTION", "load", "lowered", "sealed", "view"]

SECTION = "weights.suite"
SEALED_ALIGN = 65_536  # dpfedge.backend.api: SealedView.offset
_ALIGN = 64


def lowered(
    backend: Backend, device: Device, model: onnx.ModelProto, options: Mapping[str, Any] | None = None
) -> LoweredGraph:
    """`model` lowered for the architecture and the features of `device`."""
    request = LowerRequest(
        model.graph.name, bytes(model.SerializeToString()), device.arch, device.features, options or {}
    )
    return backend.lower(request)


def view(backend: Backend, graph: LoweredGraph, name: str, samples: Sequence[Mapping[str, Array]] = ()) -> GraphView:
    """A lowered graph as an opened package shows it; `samples` are its golden inputs, for `seal`."""
    places, size = {}, 0
    for key, array in graph.weights.items():
        size += -size % _ALIGN
        places[key] = (SECTION, size, array.nbytes)
        size += array.nbytes
    weights = {}
    if size:
        with tempfile.TemporaryFile(prefix="dpfedge-suite-") as file:
            for key, array in graph.weights.items():
                file.seek(places[key][1])
                file.write(array.reshape(-1).view("u1").data)
            file.truncate(size)
            weights[SECTION] = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    code = backend.finish(graph, places)
    return GraphView(name, memoryview(code), graph.inputs, graph.outputs, weights, samples=samples)


@contextmanager
def sealed(backend: Backend, device: Device, graph: GraphView) -> Iterator[GraphView]:
    """`graph` with what the backend builds for it on `device`, mapped from a file as a sidecar is."""
    seals = sealing(backend)
    made = None if seals is None else seals.seal(graph, device, Budget())
    with tempfile.TemporaryFile(prefix="dpfedge-suite-") as file:
        places: dict[str, tuple[int, int]] = {}
        for name, pieces in (made or {}).items():
            start = file.seek(-(-file.tell() // SEALED_ALIGN) * SEALED_ALIGN)
            for piece in pieces:
                file.write(np.ascontiguousarray(piece).reshape(-1).view("u1").data)
            places[name] = start, file.tell() - start
        file.flush()
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if places else memoryview(b"")
        views = {
            name: SealedView(data[start : start + size], file.fileno(), start) for name, (start, size) in places.items()
        }
        yield replace(graph, sealed=views)


def load(backend: Backend, device: Device, model: onnx.ModelProto, budget: Budget | None = None) -> Executable:
    """`model`, lowered and loaded on `device`; it is called as its graph is."""
    graph = view(backend, lowered(backend, device, model), model.graph.name)
    return backend.load(graph, device, budget or Budget())
