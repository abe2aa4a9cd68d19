# SPDX-License-Identifier: Apache-2.0
"""Devices, lowering, loading, sealing and health of AMD GPUs: a lowered graph in, an executable on the GPU out.

It imports onnxruntime and ROCm's libraries only in `load` and `seal`. Inputs and outputs are copied between host and
GPU, and counted; a linked output, such as a cache of keys and values, stays on the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge.backend.api import (
    ABI,
    Array,
    Budget,
    Capabilities,
    Device,
    GraphView,
    Health,
    Identity,
    LoweredGraph,
    LowerRequest,
)
from dpfedge_rocm.devices import find_devices

if TYPE_CHECKING:
    from dpfedge_cpu.placed import PlacedExecutable

    from dpfedge_rocm.health import Watch

__all__ = ["RocmBackend"]

DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})


class RocmBackend:
    """Runs graphs on AMD GPUs with onnxruntime's MIGraphX provider."""

    name = "rocm"
    version = "0.1.0"
    abi = ABI
    compares_sealed = False

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """Each GPU, or each partition of one, `rocm:0` and on in KFD's order."""
        return find_devices(sysroot, self.name)

    def capabilities(self, device: Device) -> Capabilities:
        """Fixed sizes only, since MIGraphX compiles a program for each; a program cannot be ended on its way."""
        return Capabilities(dtypes=DTYPES, dynamic_shapes=False, arena_in_place=False, seals=True)

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """Optimise the graph as far as every GPU agrees; Unsupported names operators that MIGraphX lacks."""
        from dpfedge_rocm.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each weight addressed as (section name, offset, size)."""
        from dpfedge.backend.onnx_graph import place_weights

        return place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> PlacedExecutable:
        """Load the sealed program, or else have the graph compiled now."""
        from dpfedge_cpu.placed import PlacedExecutable

        from dpfedge_rocm.session import RocmMemory, open_session

        session, number = open_session(graph, device, budget)
        return PlacedExecutable(graph, session, RocmMemory(number))

    def identity(self, device: Device) -> Identity:
        """Programs are of one target, number of units, ROCm and provider."""
        from dpfedge_rocm.versions import libraries

        keys = ("id", "units", "compute_partition", "memory_partition")
        facts = {key: str(device.facts[key]) for key in keys if key in device.facts}
        facts |= {"kind": device.kind, "arch": device.arch, "features": " ".join(sorted(device.features))}
        return Identity(
            facts,
            {**libraries(), "dpfedge-rocm": self.version},
            " ".join(f"{name} {version}" for name, version in sorted(device.drivers.items())),
        )

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """The program MIGraphX compiles for this GPU."""
        from dpfedge_rocm.programs import collect
        from dpfedge_rocm.session import open_at

        return collect(graph.name, partial(open_at, graph, device, budget))

    def health(self, device: Device) -> Health:
        """The whole GPU's state, from sysfs and, where it is installed, AMD SMI; a partition has none of its own."""
        return _watch(str(device.facts["pci"])).health()


@cache
def _watch(address: str) -> Watch:
    from dpfedge_rocm.health import Watch

    return Watch(address)
