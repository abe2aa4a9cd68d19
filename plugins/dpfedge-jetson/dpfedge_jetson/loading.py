# SPDX-License-Identifier: Apache-2.0
"""Graphs onto the GPU or a DLA of a Tegra: a lowered graph, a device and a budget in; an executable or a seal out.

The GPU's part is `dpfedge-cuda`'s, on the one GPU that CUDA calls integrated. A DLA runs engines of TensorRT itself.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from dpfedge_cpu.provider import Providers
from dpfedge_cuda.driver import Context, Driver
from dpfedge_cuda.loading import Loader
from dpfedge_cuda.memory import CudaMemory

from dpfedge.backend.api import Array, Budget, Device, GraphView
from dpfedge.errors import Unavailable, Unsupported
from dpfedge_jetson.devices import DLA_ARCHS, WHERE, named

if TYPE_CHECKING:
    from dpfedge_cuda.executable import CudaExecutable

    from dpfedge_jetson.executable import DlaExecutable

__all__ = ["ENGINE", "JetsonLoader"]

ENGINE = "dla"
"""Name of a sealed engine for a DLA."""
_REMEDY = (
    "install an onnxruntime-gpu built for this JetPack (Jetson AI Lab's index); PyPI's aarch64 build is for servers"
)


class JetsonLoader(Loader):
    """What this process has open of the Tegra."""

    def __init__(self, driver: Driver | None = None) -> None:
        super().__init__(driver)
        self._chip: Context | None = None
        self._chip_lock = threading.Lock()

    def load(self, graph: GraphView, device: Device, budget: Budget) -> CudaExecutable | DlaExecutable:  # type: ignore[override]
        """An executable on the GPU's stream of the budget's urgency, or on a DLA."""
        _check_arch(graph, device)
        with named():
            return self._load_dla(graph, device) if device.arch in DLA_ARCHS else super().load(graph, device, budget)

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """TensorRT's engines, for the GPU in the form onnxruntime loads; None without TensorRT."""
        _check_arch(graph, device)
        with named():
            if device.arch not in DLA_ARCHS:
                return super().seal(graph, device, budget)
            from dpfedge_jetson.engine import build

            self._context(device)
            return {ENGINE: [np.frombuffer(build(graph, int(device.facts["core"])), np.uint8)]}

    def _load_dla(self, graph: GraphView, device: Device) -> DlaExecutable:
        """From the sealed engine, or one built now."""
        from dpfedge_jetson.engine import build, open_engine
        from dpfedge_jetson.executable import DlaExecutable

        core, context = int(device.facts["core"]), self._context(device)
        sealed = graph.sealed.get(ENGINE)
        data = memoryview(build(graph, core)) if sealed is None else sealed.data
        engine = open_engine(data, core, f"graph {graph.name}")
        stream = context.stream(high=True)

        def wait() -> None:
            context.do("cuStreamSynchronize", lambda cuda: cuda.call("cuStreamSynchronize", stream))

        return DlaExecutable(graph, engine, CudaMemory(context), stream, wait)

    def _context(self, device: Device) -> Context:
        """The integrated GPU's context: a DLA's memory and streams are CUDA's."""
        with self._chip_lock:
            if self._chip is None:
                told = self._find(device)
                if told["ordinal"]:
                    raise Unavailable(
                        "TensorRT would take another GPU: the chip's own is not CUDA's first",
                        where=f"{WHERE}: {device.id}", found=f"CUDA's device {told['ordinal']}",
                        remedy=f"CUDA_VISIBLE_DEVICES={told['ordinal']}",
                    )  # fmt: skip
                self._chip = Context(self.driver, told["ordinal"], told)
            return self._chip

    def _find(self, device: Device) -> dict[str, Any]:
        """The GPU inside the chip; Unavailable where CUDA shows none, never a card in a slot."""
        seen = self.driver.devices()
        found = [told for told in seen if told["integrated"]]
        wanted = int(device.arch[3:]) if device.arch.startswith("sm_") else None
        if len(found) == 1 and wanted in (None, found[0]["capability"]):
            return found[0]
        raise Unavailable(
            "CUDA does not see the chip's own GPU", where=f"{WHERE}: {device.id}",
            found=", ".join(f"{told['name']} (sm_{told['capability']})" for told in seen) or "no device",
            allowed=device.arch if wanted is not None else "the integrated GPU",
            remedy="CUDA_VISIBLE_DEVICES hides it, or a container was not given it",
        )  # fmt: skip

    def _providers(self, *arguments: Any, **options: Any) -> Providers:
        return dataclasses.replace(super()._providers(*arguments, **options), backend="jetson", remedy=_REMEDY)


def _check_arch(graph: GraphView, device: Device) -> None:
    arch = graph.options.get("arch")
    if arch is not None and arch != device.arch:
        raise Unsupported(
            "the graph was lowered for another device", where=f"graph {graph.name}", found=device.arch, allowed=arch,
            remedy="compile the package for this board",
        )  # fmt: skip
