# SPDX-License-Identifier: Apache-2.0
"""The CUDA backend over a stand-in for the driver and onnxruntime's CPU provider in the CUDA provider's place.

Everything between the contract and the vendor's libraries is the real code: sessions, bindings, pinned memory, streams,
pressure. What a GPU computes is not: tests/conformance/test_cuda.py is for machines that have one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import standin
from dpfedge_cpu.provider import SHAPE_OPERATORS, Provider, Providers
from dpfedge_cuda import CudaBackend
from dpfedge_cuda.devices import features_of
from dpfedge_cuda.memory import CudaMemory

from dpfedge.backend.api import Capabilities, Device, Health

__all__ = ["DEVICE", "StandInBackend", "fake_providers", "stand_in_driver"]

DEVICE = Device(
    id="cuda:0", backend="cuda", kind="gpu.nvidia", name="stand-in for an H100", arch="sm_90",
    features=features_of("sm_90"), memory_bytes=80 << 30, facts={"pci": "0000:18:00.0"},
    drivers={"nvidia": "580.65.06"},
)  # fmt: skip


class StandInBackend(CudaBackend):
    """Finds the fake device on this machine, and nothing on any other."""

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """The stand-in."""
        return [DEVICE] if sysroot == Path("/") else []

    def capabilities(self, device: Device) -> Capabilities:
        """Those of a GPU, but the CPU provider tells no levels apart."""
        return replace(super().capabilities(device), priorities=1)

    def health(self, device: Device) -> Health:
        """Of nothing."""
        return Health(0.0, 0.75)


def fake_providers(ordinal: int, stream: int, *, graphs: bool, options: Mapping[str, Any], tensorrt: Any) -> Providers:
    """The CPU's, in the place of `providers.cuda_providers`."""
    return Providers("cuda", [Provider("CPUExecutionProvider")], "", host=SHAPE_OPERATORS)


@contextmanager
def stand_in_driver(patch: pytest.MonkeyPatch, *without: str) -> Iterator[Path]:
    """libcuda is the stand-in, for this process and its children; the folder it lies in."""
    folder = standin.build("cuda.c", "libcuda.so.1", *without)
    patch.setenv("LD_LIBRARY_PATH", str(folder))
    patch.setattr("dpfedge_cuda.libcuda.LIBRARY", str(folder / "libcuda.so.1"))
    patch.setattr("dpfedge_cuda.loading.cuda_providers", fake_providers)
    patch.setattr(CudaMemory, "kind", "cpu")
    yield folder
