# SPDX-License-Identifier: Apache-2.0
"""Devices, lowering, loading, sealing and health of Orin's and Thor's GPU and DLAs: a graph in, an executable out.

Importing it imports no onnxruntime, no TensorRT and no native library. CPU, GPU and DLA share one memory, so that links
are used in place.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.backend.api import (
    ABI,
    Array,
    Budget,
    Capabilities,
    Device,
    Executable,
    GraphView,
    Health,
    Identity,
    LoweredGraph,
    LowerRequest,
)
from dpfedge_jetson.devices import DLA_ARCHS, find_devices, named

if TYPE_CHECKING:
    from dpfedge_jetson.health import Watch
    from dpfedge_jetson.loading import JetsonLoader

__all__ = ["JetsonBackend"]

GPU_DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})
DLA_DTYPES = frozenset({"f32", "f16"})


class JetsonBackend:
    """Runs graphs on the GPU inside a Tegra with onnxruntime and TensorRT, and on its DLAs with TensorRT."""

    name = "jetson"
    version = "0.1.0"
    abi = ABI
    compares_sealed = False

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def _loader(self) -> JetsonLoader:
        from dpfedge_jetson.loading import JetsonLoader

        return JetsonLoader()

    @cached_property
    def _watch(self) -> Watch:
        from dpfedge_cuda.telling import nvml_teller

        from dpfedge_jetson.health import Watch

        teller = nvml_teller()
        return Watch(lambda address: teller.ask("health", address))

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """`jetson:0`, the GPU, and `jetson:dla0` and on, where the module has DLAs."""
        return find_devices(sysroot, self.name)

    def capabilities(self, device: Device) -> Capabilities:
        """The GPU as CUDA has it; a DLA has fixed sizes, one queue, and ends no run on its way."""
        if device.arch in DLA_ARCHS:
            return Capabilities(dtypes=DLA_DTYPES, dynamic_shapes=False, arena_in_place=True, seals=True)
        return Capabilities(
            dtypes=GPU_DTYPES, dynamic_shapes=True, arena_in_place=True, seals=True, cancels=True, streams=2,
            priorities=2,
        )  # fmt: skip

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """A graph that the GPU, or a DLA, runs whole; Unsupported names each node that it does not."""
        from dpfedge_jetson.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each weight addressed as (section name, offset, size)."""
        from dpfedge.backend.onnx_graph import place_weights

        return place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> Executable:
        """A session on the GPU's stream for this urgency, or an engine on a DLA."""
        with self._lock:
            loader = self._loader
        return loader.load(graph, device, budget)

    def identity(self, device: Device) -> Identity:
        """Engines are of one chip, module, L4T and TensorRT; a DLA's also of its core."""
        from dpfedge_jetson.versions import libraries

        facts: dict[str, Any] = {"kind": device.kind, "arch": device.arch, "memory": device.memory_bytes}
        facts |= {key: device.facts[key] for key in ("module", "core") if key in device.facts}
        driver = " ".join(f"{name} {text}" for name, text in sorted(device.drivers.items()))
        return Identity(
            {key: str(value) for key, value in facts.items()}, {"dpfedge-jetson": self.version, **libraries()}, driver
        )

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """TensorRT's engine for this device."""
        with self._lock:
            loader = self._loader
        return loader.seal(graph, device, budget)

    def health(self, device: Device) -> Health:
        """The machine's memory and heat, the GPU's load, and what the board draws."""
        with self._lock:
            watch = self._watch
        with named():
            return watch.health(device)
