# SPDX-License-Identifier: Apache-2.0
"""The template's backend: devices, capabilities, lowering and loading; `plan.py` compiles and runs.

It imports NumPy and onnx only where graphs are lowered or loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpfedge.backend.api import ABI, Budget, Capabilities, Device, GraphView, Health, LoweredGraph, LowerRequest
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.backend.host import HostExecutable

__all__ = ["TemplateBackend"]


class TemplateBackend:
    """Runs a few operators in NumPy."""

    name = "template"
    version = "0.1.0"
    abi = ABI

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """The CPU of the machine."""
        facts = cpu_facts(sysroot)
        return [
            Device(
                id="template:0", backend=self.name, kind=f"cpu.{facts.arch}", name="NumPy", arch=facts.level,
                features=facts.features, memory_bytes=facts.memory_bytes, unified_memory=True,
            )
        ]  # fmt: skip

    def capabilities(self, device: Device) -> Capabilities:
        """Any size, in the caller's memory."""
        return Capabilities(dtypes=frozenset({"f32", "f16", "f64"}), dynamic_shapes=True, arena_in_place=True)

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """A plan; Unsupported names each operator it lacks."""
        from dpfedge_template.plan import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The plan with the place of each weight."""
        from dpfedge_template.plan import finish

        return finish(lowered, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        """The plan with views of its weights."""
        from dpfedge_template.plan import load

        return load(graph)

    def health(self, device: Device) -> Health:
        """Load average over cores, and free over all memory."""
        free = os.sysconf("SC_AVPHYS_PAGES") / os.sysconf("SC_PHYS_PAGES")
        return Health(utilisation=min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), free_memory=free)
