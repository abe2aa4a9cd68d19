# SPDX-License-Identifier: Apache-2.0
"""A plugin that brings the CUDA backend over a stand-in driver, with onnxruntime's CPU provider in CUDA's place.

Copied as it is into a folder of packages, for processes that load it by its entry point. Everything between the
contract and the vendor's libraries is the real code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpfedge_cuda import CudaBackend
from dpfedge_cuda.devices import features_of
from dpfedge_cuda.executable import CudaExecutable

from dpfedge.backend.api import Budget, Device, GraphView
from dpfedge.plugin.hookspecs import Register, hookimpl

DEVICE = Device(
    id="cuda:0", backend="cuda", kind="gpu.nvidia", name="stand-in for an H100", arch="sm_90",
    features=features_of("sm_90"), memory_bytes=80 << 30, facts={"pci": "0000:18:00.0"},
    drivers={"nvidia": "580.65.06"},
)  # fmt: skip


class StandInBackend(CudaBackend):
    """Finds the fake device everywhere."""

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """The stand-in."""
        return [DEVICE]

    def load(self, graph: GraphView, device: Device, budget: Budget) -> CudaExecutable:
        """With the CPU's provider."""
        from dpfedge_cpu.provider import Provider, Providers
        from dpfedge_cuda import loading
        from dpfedge_cuda.memory import CudaMemory

        loading.cuda_providers = lambda *place, **more: Providers("cuda", [Provider("CPUExecutionProvider")], "")
        CudaMemory.kind = "cpu"
        return super().load(graph, device, budget)


@hookimpl
def dpfedge_register_backends(register: Register) -> None:
    """Under the CUDA backend's own name."""
    register.add(StandInBackend())
