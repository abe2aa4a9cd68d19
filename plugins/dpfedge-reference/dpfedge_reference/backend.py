# SPDX-License-Identifier: Apache-2.0
"""The reference backend: an ONNX graph in, the same graph in a package, and an executable in NumPy, out.

It optimises nothing and needs no device. onnx is imported only in `lower` and `load`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpfedge.backend.api import (
    ABI,
    Budget,
    Capabilities,
    Device,
    GraphView,
    Health,
    LoweredGraph,
    LowerRequest,
)
from dpfedge.backend.cpu_facts import cpu_facts

if TYPE_CHECKING:
    from dpfedge.backend.host import HostExecutable

__all__ = ["ReferenceBackend"]

DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})


class ReferenceBackend:
    """Runs graphs in NumPy, exactly as their operators are defined."""

    name = "reference"
    version = "0.1.0"
    abi = ABI

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """One device, `reference:0`, on any machine."""
        facts = cpu_facts(sysroot)
        return [
            Device(
                id="reference:0",
                backend=self.name,
                kind=f"cpu.{facts.arch}",
                name="NumPy",
                arch=facts.level,
                features=facts.features,
                memory_bytes=facts.memory_bytes,
                unified_memory=True,
            )
        ]

    def capabilities(self, device: Device) -> Capabilities:
        """Inputs are read in place; outputs are written into the caller's memory once they are known."""
        return Capabilities(dtypes=DTYPES, dynamic_shapes=True, arena_in_place=True)

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """The graph as it is, its large constants apart; Unsupported names the operators it has no definition of."""
        from dpfedge_reference.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each constant addressed as (section name, offset, size)."""
        from dpfedge.backend.onnx_graph import place_weights

        return place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        """The graph with its constants viewed where the package maps them."""
        from dpfedge_reference.evaluator import load

        return load(graph)

    def health(self, device: Device) -> Health:
        """Load average over cores, and free over all memory, of the running machine."""
        free = os.sysconf("SC_AVPHYS_PAGES") / os.sysconf("SC_PHYS_PAGES")
        return Health(utilisation=min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), free_memory=free)
