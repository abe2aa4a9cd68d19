# SPDX-License-Identifier: Apache-2.0
"""The OpenCL backend: devices, capabilities, lowering, loading and sealing as the contract asks.

It imports pyopencl only where a graph is loaded or sealed, and onnx only where one is lowered.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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

if TYPE_CHECKING:
    from dpfedge_opencl.executable import OpenClExecutable

__all__ = ["OpenClBackend"]

DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})


class OpenClBackend:
    """Runs graphs as kernels on one OpenCL device, and what has no kernel on the CPU plugin over the same memory."""

    name = "opencl"
    version = "0.1.0"
    abi = ABI
    compares_sealed = True  # each binary has a digest of its own

    def __init__(self) -> None:
        from dpfedge_opencl.health import HealthReader

        self._health = HealthReader()

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """Every OpenCL device with a compiler, `opencl:<n>`; of another root the GPUs that its files name."""
        from dpfedge_opencl.devices import devices_of

        return devices_of(sysroot)

    def capabilities(self, device: Device) -> Capabilities:
        """Shapes may change from run to run; the caller's memory is used in place on CPUs and by Arm's import."""
        in_place = (
            bool(device.facts.get("in_place", False)) and os.environ.get("DPFEDGE_OPENCL_MEMORY") != "alloc_host_ptr"
        )
        return Capabilities(
            dtypes=DTYPES, dynamic_shapes=True, arena_in_place=in_place, seals=True, cancels=True,
            priorities=int(device.facts.get("priorities", 1)),
        )  # fmt: skip

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """A graph of this backend's operators, the rest as graphs of the CPU plugin; needs the package `onnx`."""
        from dpfedge_opencl.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each weight addressed as (section name, offset, size)."""
        from dpfedge_opencl.lower import finish

        return finish(lowered, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> OpenClExecutable:
        """The graph with its weights wrapped where the package maps them; plans and programs come when shapes do."""
        from dpfedge_opencl.loading import load

        return load(graph, device, budget)

    def identity(self, device: Device) -> Identity:
        """Programs belong to one device, driver and version of this plugin."""
        from dpfedge_opencl.seal import identity

        return identity(device, self.version)

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """The programs of `graph` as the driver compiled them."""
        from dpfedge_opencl.seal import seal

        return seal(graph, device, budget)

    def health(self, device: Device) -> Health:
        """The state now, from files."""
        return self._health.read(device)
