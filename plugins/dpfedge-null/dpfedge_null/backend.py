# SPDX-License-Identifier: Apache-2.0
"""A skeleton of a backend: graphs go into packages and come back, and nothing is ever computed.

Each comment says what a real backend does in that place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.backend.api import ABI, Array, Budget, Capabilities, Device, GraphView, Health, LoweredGraph, LowerRequest
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError, Unsupported

__all__ = ["NullBackend"]

_MAGIC = b"null\0"


class NullBackend:
    """Runs nothing, anywhere."""

    name = "null"
    version = "0.1.0"
    abi = ABI

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """One device on any machine."""
        # read files below `sysroot`; `dpfedge.backend.accelerators` lists GPUs, `dpfedge.backend.cpu_facts` the CPU
        return [
            Device(
                id="null:0", backend=self.name, kind="null", name="nothing", arch="none", features=frozenset(),
                memory_bytes=0, unified_memory=True,
            )
        ]  # fmt: skip

    def capabilities(self, device: Device) -> Capabilities:
        """What a port may carry is all it can do."""
        # promise what the suite has shown, and no more
        return Capabilities(dtypes=frozenset({"f32"}), dynamic_shapes=True, arena_in_place=True)

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """The graph as it is, its weights apart."""
        from dpfedge.backend.onnx_graph import graph_ports, read_model, take_weights

        where = f"graph {request.name}"
        model = read_model(request.onnx, where)
        inputs, outputs = graph_ports(model, where)
        weights = take_weights(model)
        # compile `model` for `request.arch` here; raise Unsupported for an operator that will never run
        return LoweredGraph(model.SerializeToString(deterministic=True), weights, inputs, outputs)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph behind a mark, each weight with its place."""
        from dpfedge.backend.onnx_graph import place_weights

        return _MAGIC + place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        """What was lowered, ready to refuse to run."""
        where = f"graph {graph.name}"
        if bytes(graph.code[: len(_MAGIC)]) != _MAGIC:
            raise BackendError("it was not lowered by this backend", where=where)

        def compute(feeds: Mapping[str, Array]) -> Sequence[Any]:
            raise Unsupported("this backend runs nothing", where=where)

        # an executable of one's own has the methods of `dpfedge.backend.api.Executable`
        return HostExecutable(graph, compute)

    def health(self, device: Device) -> Health:
        """Idle, all of its memory free."""
        # read the device's own counters
        return Health(utilisation=0.0, free_memory=1.0)
