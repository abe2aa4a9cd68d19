# SPDX-License-Identifier: Apache-2.0
"""Graphs onto GPUs: a lowered graph, a device and a budget in; an executable, or what is sealed for it, out.

It holds what a process has open of each device. CUDA lets one process use one MIG instance, and only the one it named
before it began.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from dpfedge_cpu.provider import Providers, open_on
from dpfedge_cpu.session import runtime

from dpfedge.backend.api import Array, Budget, Device, GraphView
from dpfedge.backend.bounded import bounded
from dpfedge.backend.fatbin import Kernels, read_kernels
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge_cuda.capture import MARK
from dpfedge_cuda.devices import instance_of
from dpfedge_cuda.driver import Context, Driver
from dpfedge_cuda.executable import CudaExecutable, cuda_errors
from dpfedge_cuda.memory import CudaMemory
from dpfedge_cuda.pressure import Pressure
from dpfedge_cuda.providers import ENGINE, cuda_providers, tensorrt_wanted
from dpfedge_cuda.turns import CAPTURES

__all__ = ["Loader", "check_kernels"]

_URGENT = 3
"""The last urgency that goes first: 3 is the usual one (RFC 9218)."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OPEN_S = 600.0  # weights of tens of gigabytes, or TensorRT's engines
_LIBRARY = "libonnxruntime_providers_cuda.so"
_NO_GRAPH = ("cannot use the graph capture feature", "control flow nodes", "graph capture")


class Loader:
    """What this process has open: the driver, a context for each device, and whether its memory is low."""

    def __init__(self, driver: Driver | None = None) -> None:
        self.driver = driver or Driver()
        self._open: dict[str, tuple[Context, Pressure]] = {}
        self._lock = threading.Lock()

    def load(self, graph: GraphView, device: Device, budget: Budget) -> CudaExecutable:
        """An executable on the stream of the budget's urgency."""
        context, pressure = self._device(device)
        high = budget.urgency <= _URGENT
        memory = CudaMemory(context)
        if self._tensorrt(graph):
            engine = graph.sealed.get(ENGINE)
            view = graph if engine is None else _sealed(graph, engine.data)
            session = self._session(view, budget, self._providers(context, high, graph, tensorrt={}))
            captures = False
        else:
            session, captures = self._with_graphs(graph, budget, context, high)
        admit = None if high else pressure.admit
        executable = CudaExecutable(graph, session, memory, captures=captures, admit=admit)
        executable.keeps_links = memory.own
        return executable

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """TensorRT's engines in the form onnxruntime loads them; None for a graph that does not run on TensorRT."""
        context, _ = self._device(device)
        if not self._tensorrt(graph):
            return None
        with tempfile.TemporaryDirectory(prefix="dpfedge-seal-") as folder:
            target = Path(folder, "engine.onnx")
            options = {
                "trt_dump_ep_context_model": "1", "trt_ep_context_file_path": str(target),
                "trt_ep_context_embed_mode": "1", "trt_timing_cache_enable": "1", "trt_timing_cache_path": folder,
            }  # fmt: skip
            self._session(graph, budget, self._providers(context, True, graph, tensorrt=options))
            return {ENGINE: [np.frombuffer(target.read_bytes(), np.uint8)]} if target.exists() else None

    def _with_graphs(self, graph: GraphView, budget: Budget, context: Context, high: bool) -> tuple[Any, bool]:
        """A session that captures graphs where shapes are fixed and the provider agrees; whether it does."""
        if _is_fixed(graph) and MARK.encode() in bytes(graph.code):
            try:
                return self._session(graph, budget, self._providers(context, high, graph, graphs=True)), True
            except BackendError as error:
                if not any(words in str(error) for words in _NO_GRAPH):
                    raise
        return self._session(graph, budget, self._providers(context, high, graph)), False

    def _session(self, graph: GraphView, budget: Budget, providers: Providers) -> Any:
        with cuda_errors(), CAPTURES.loading:
            return bounded(lambda: open_on(graph, budget, providers)[0], f"graph {graph.name}: onnxruntime", _OPEN_S)

    def _providers(
        self, context: Context, high: bool, graph: GraphView, *, graphs: bool = False,
        tensorrt: Mapping[str, str] | None = None,
    ) -> Providers:  # fmt: skip
        stream = context.stream(high=high)
        return cuda_providers(context.ordinal, stream, graphs=graphs, options=graph.options, tensorrt=tensorrt)

    @staticmethod
    def _tensorrt(graph: GraphView) -> bool:
        """Whether TensorRT runs it: for shapes that change it would build an engine in the middle of a request."""
        return _is_fixed(graph) and tensorrt_wanted(os.environ, runtime("cuda").get_available_providers())

    def _device(self, device: Device) -> tuple[Context, Pressure]:
        with self._lock:
            if device.id not in self._open:
                check_kernels(device.arch)
                _preload()
                told = self._find(device)
                context = Context(self.driver, told["ordinal"], told)
                self._open[device.id] = context, Pressure(context.free_share)
            return self._open[device.id]

    def _find(self, device: Device) -> dict[str, Any]:
        """What CUDA calls the device; Unavailable where this process does not see it."""
        part = device.facts.get("part")
        if part is not None and _VISIBLE not in os.environ and not self.driver.started():
            os.environ[_VISIBLE] = instance_of(device)
            self.driver.forget()
        found = [told for told in self.driver.devices() if _is(told, device)]
        if len(found) == 1:
            return found[0]
        if part is not None:
            raise Unsupported(
                "a process uses one MIG instance, and this one began with another",
                where=f"backend cuda: {device.id}", found=f"{_VISIBLE}={os.environ.get(_VISIBLE, '')}",
                remedy="start a worker process for each instance",
            )  # fmt: skip
        raise Unavailable(
            "CUDA does not see this device", where=f"backend cuda: {device.id}",
            found=", ".join(f"{told['name']} ({told['pci']})" for told in self.driver.devices()) or "no device",
            remedy=f"{_VISIBLE} hides it, or a container was not given it",
        )  # fmt: skip


def _is_fixed(graph: GraphView) -> bool:
    """Whether every port has one shape only."""
    return all(isinstance(dim, int) for spec in (*graph.inputs, *graph.outputs) for dim in spec.dims)


def _is(told: Mapping[str, Any], device: Device) -> bool:
    if "part" in device.facts:  # new UUIDs name the instance; with the old form the process sees the one it named
        uuid = instance_of(device).removeprefix("MIG-")
        return bool(told["uuid"] == uuid or "/" in uuid)
    return _place(told["pci"]) == _place(str(device.facts["pci"]))


def _place(address: str) -> tuple[int, ...]:
    """Domain, bus and device of a PCI address: drivers write domains with 4 digits or 8."""
    domain, bus, device = address.partition(".")[0].split(":")
    return int(domain, 16), int(bus, 16), int(device, 16)


def _sealed(graph: GraphView, engine: memoryview) -> GraphView:
    return GraphView(graph.name, engine, graph.inputs, graph.outputs, graph.weights, graph.options)


@cache
def _kernels() -> Kernels | None:
    return read_kernels(Path(str(runtime("cuda").__file__)).parent / "capi" / _LIBRARY)


def check_kernels(arch: str, kernels: Kernels | None = None) -> None:
    """Unsupported where this build of onnxruntime has no code that a GPU of `arch` can run: else it fails at its first
    operator. A build without any GPU code is for `open_on` to refuse."""
    found = kernels if kernels is not None else _kernels()
    if found is None or found.run_on(int(arch[3:])):
        return
    had = ", ".join(f"sm_{code}" for code in sorted(found.cubins))
    raise Unsupported(
        "this build of onnxruntime has no kernels for this GPU", where="backend cuda", found=arch,
        allowed=had + ("" if found.ptx else "; it has no PTX that could be compiled for others"),
        remedy="install a build for this architecture; for Jetson, one of its JetPack's index",
    )  # fmt: skip


@cache
def _preload() -> None:
    """Load CUDA and cuDNN from the wheels they came in, as far as they did; what is missing shows when a session
    opens."""
    preload = getattr(runtime("cuda"), "preload_dlls", None)
    if preload is not None:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints there what it does not find
            preload()
