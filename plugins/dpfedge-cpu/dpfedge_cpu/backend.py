# SPDX-License-Identifier: Apache-2.0
"""Devices, capabilities, loading and health of the CPU backend: a lowered graph in, an executable out.

It imports onnxruntime only in `load` and `lower`, so listing devices stays cheap; what a CPU is comes from
`dpfedge.backend.cpu_facts`.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
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
from dpfedge.errors import Unavailable, Unsupported

if TYPE_CHECKING:
    from dpfedge_cpu.health import MachineHealth
    from dpfedge_cpu.session import CpuExecutable

__all__ = ["CpuBackend"]

DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})


class CpuBackend:
    """Runs graphs on the CPUs of this machine with onnxruntime."""

    name = "cpu"
    version = "0.1.0"
    abi = ABI
    compares_sealed = True
    _health: MachineHealth | None = None

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """The machine's CPUs as one device, `cpu:0`; Unavailable where onnxruntime would run instructions it lacks."""
        # every stage loads this plugin, and none of them asks what the machine is
        from dpfedge.backend.cpu_facts import cpu_facts, false_text

        facts = cpu_facts(sysroot)
        if (false := false_text(facts.arch, sysroot)) is not None:
            raise Unavailable(
                "onnxruntime goes by /proc/cpuinfo, which is of another CPU than this one",
                where="backend cpu",
                found=false,
                allowed=f"{facts.arch} with {' '.join(sorted(facts.features)) or 'no extensions'}",
                remedy="show the true /proc/cpuinfo to this root, or hide /sys from it",
            )
        return [
            Device(
                id="cpu:0",
                backend=self.name,
                kind=f"cpu.{facts.arch}",
                name=facts.level,
                arch=facts.level,
                features=frozenset(facts.features),
                memory_bytes=facts.memory_bytes,
                unified_memory=True,
                facts={"cores": facts.cores},
                drivers=facts.drivers,
            )
        ]

    def capabilities(self, device: Device) -> Capabilities:
        """Everything is used in place; shapes may change from run to run; a run occupies the thread that calls it."""
        cores = int(device.facts.get("cores", 1))
        return Capabilities(
            dtypes=DTYPES, dynamic_shapes=True, arena_in_place=True, seals=False, cancels=True, streams=max(1, cores)
        )

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """Optimise the graph with onnxruntime for `request.arch`; needs the package `onnx`."""
        from dpfedge_cpu.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each weight addressed as (section name, offset, size)."""
        from dpfedge.backend.onnx_graph import place_weights

        return place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> CpuExecutable:
        """Open a session whose weights stay where the package maps them; `options["arch"]` must be the device's."""
        arch = graph.options.get("arch")
        if arch is not None and arch != device.arch:
            raise Unsupported(
                "the graph's memory layout belongs to another CPU",
                where=f"graph {graph.name}",
                found=device.arch,
                allowed=arch,
                remedy="compile the package for this board",
            )
        from dpfedge_cpu.session import CpuExecutable, open_session

        def load() -> CpuExecutable:
            return CpuExecutable(graph, open_session(graph, budget))

        if not graph.sealed:
            return load()
        from dpfedge_cpu.packed import load_shared

        return load_shared(load, graph.sealed)

    def identity(self, device: Device) -> Identity:
        """Kernels, and so the last bits of results, are chosen by architecture and features."""
        facts = {"kind": device.kind, "arch": device.arch, "features": " ".join(sorted(device.features))}
        facts["page_bytes"] = str(mmap.PAGESIZE)  # a sealed image is made of pages
        return Identity(
            facts, {"onnxruntime": _onnxruntime_version(), "dpfedge-cpu": self.version, "libc": _libc_version()}
        )

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """The pages onnxruntime packs weights into, for every process to share; None for a graph without large ones."""
        from dpfedge_cpu.packed import collect
        from dpfedge_cpu.session import open_session

        weights = sum(view.nbytes for view in graph.weights.values())
        return collect(lambda: open_session(graph, budget), weights)

    def health(self, device: Device) -> Health:
        """Load average over cores, and available over total memory, of the running machine."""
        if self._health is None:
            from dpfedge_cpu.health import MachineHealth

            self._health = MachineHealth()
        return self._health.look()


def _libc_version() -> str:
    """The C library with its version: its mathematics is in results, and its allocator in sealed pages."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except ValueError:
        return "not glibc"


def _onnxruntime_version() -> str:
    """As the module says, loaded or not; `importlib.metadata` alone takes longer than binding."""
    if (loaded := sys.modules.get("onnxruntime")) is not None:
        return str(loaded.__version__)
    spec = PathFinder.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return "not installed"
    found = re.search(r'^__version__ = "(.+)"$', Path(spec.origin).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else "unknown"
