# SPDX-License-Identifier: Apache-2.0
"""Devices, capabilities, loading, sealing and health of the CUDA backend: a lowered graph in, an executable out.

Importing it imports no onnxruntime and no native library. Every graph runs on the GPU or not at all: only arithmetic on
shapes stays on the CPU, as the CUDA provider wants it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from dpfedge.backend.sensors import free_memory
from dpfedge.backend.telling import Teller
from dpfedge.errors import BackendError
from dpfedge_cuda.telling import nvml_teller

if TYPE_CHECKING:
    from dpfedge_cuda.executable import CudaExecutable
    from dpfedge_cuda.loading import Loader

__all__ = ["THROTTLED", "CudaBackend"]

DTYPES = frozenset({"f32", "f16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool"})
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80
"""Throttle reasons that take speed from a GPU (nvml.h): HW slowdown, SW and HW thermal slowdown, HW power brake."""
_LIBRARIES = ("onnxruntime-gpu", "onnxruntime", "tensorrt", "nvidia-cudnn-cu13", "nvidia-cublas")


class CudaBackend:
    """Runs graphs on NVIDIA GPUs and their MIG instances with onnxruntime's CUDA and TensorRT providers."""

    name = "cuda"
    version = "0.1.0"
    abi = ABI
    compares_sealed = False

    def __init__(self, teller: Callable[[], Teller] = nvml_teller) -> None:
        self._new_teller = teller
        self._tellers: dict[str, Teller] = {}
        self._lock = threading.Lock()

    def _teller(self, key: str) -> Teller:
        """One for each device, and one for the list: a GPU that hangs keeps nobody from asking of another."""
        with self._lock:
            if key not in self._tellers:
                self._tellers[key] = self._new_teller()
            return self._tellers[key]

    @cached_property
    def _loader(self) -> Loader:
        from dpfedge_cuda.loading import Loader

        return Loader()

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """GPUs by PCI address, `cuda:0` first, or their MIG instances, `cuda:0/gi3/ci0`."""
        from dpfedge.backend.accelerators import accelerators
        from dpfedge_cuda.devices import list_devices

        return list_devices(accelerators(sysroot), sysroot, lambda: self._teller("").ask("list"), os.environ)

    def capabilities(self, device: Device) -> Capabilities:
        """Links are used in place through pinned, mapped memory; one stream for urgent work and one for the rest."""
        return Capabilities(
            dtypes=DTYPES, dynamic_shapes=True, arena_in_place=True, seals=True, cancels=True, streams=2, priorities=2
        )

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """A graph that the CUDA provider runs whole; needs the package `onnx`, and no GPU."""
        from dpfedge_cuda.lower import lower

        return lower(request)

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The graph with each weight addressed as (section name, offset, size)."""
        from dpfedge.backend.onnx_graph import place_weights

        return place_weights(lowered.code, places)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> CudaExecutable:
        """A session on the device's stream for this urgency; weights are copied to the device once."""
        with self._lock:
            loader = self._loader
        return loader.load(graph, device, budget)

    def identity(self, device: Device) -> Identity:
        """GPU, memory, driver and every library that decides which kernels an engine holds."""
        facts = {"kind": device.kind, "arch": device.arch, "name": device.name, "memory": str(device.memory_bytes)}
        found = {name: text for name in _LIBRARIES if (text := _version(name))}
        driver = " ".join(f"{name} {text}" for name, text in sorted(device.drivers.items()))
        return Identity(facts, {"dpfedge-cuda": self.version, **found}, driver)

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """The graph with TensorRT's engines; None where TensorRT is not used, which needs nothing built."""
        with self._lock:
            loader = self._loader
        return loader.seal(graph, device, budget)

    def health(self, device: Device) -> Health:
        """What NVML says now; a MIG instance shares its GPU's temperature, and NVML tells no utilisation of it."""
        return health_of(self.nvml(device), device)

    def nvml(self, device: Device) -> Mapping[str, Any]:
        """All that NVML tells of the device now, clocks (MHz) and power (mW) too; None for what it does not tell."""
        from dpfedge_cuda.devices import instance_of

        key = instance_of(device) if "part" in device.facts else str(device.facts["pci"])
        return self._teller(key).ask("health", key)


def health_of(told: Mapping[str, Any], device: Device) -> Health:
    """NVML's answer as a `Health`; BackendError where it tells no memory of a GPU that has its own."""
    free = told["free"] / told["total"] if told["total"] else free_memory() if device.unified_memory else None
    if free is None:
        what, remedy = "NVML tells no memory of this device", "upgrade the driver"
        raise BackendError(what, where=f"backend cuda: {device.id}", found="not supported", remedy=remedy)
    temperature = told["temperature"]
    return Health(
        utilisation=min(1.0, max(0.0, (told["utilisation"] or 0) / 100)),
        free_memory=min(1.0, max(0.0, free)),
        temperature_c=None if temperature is None else float(temperature),
        throttled=bool((told["reasons"] or 0) & THROTTLED),
        ecc_corrected=told["corrected"] or 0,
        ecc_uncorrected=told["uncorrected"] or 0,
        faults=told["faults"] or 0,
        power_w=None if told["power"] is None else told["power"] / 1000,
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
