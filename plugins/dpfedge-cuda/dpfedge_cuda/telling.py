# SPDX-License-Identifier: Apache-2.0
"""NVML and the driver asked through child processes (`dpfedge.backend.telling`): whom, and what their errors mean.

Nothing of NVML or CUDA is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpfedge.backend.telling import Asked, Teller, ask_once
from dpfedge.errors import BackendError, Unavailable

__all__ = ["CUDA", "NVML", "ask_cuda", "nvml_teller"]

_HERE = Path(__file__).parent
_WHERE = "backend cuda"
_DOCTOR = "`dpfedge doctor --backend cuda` looks for the reason; `dmesg | grep -i NVRM` has the kernel's words"
# nvml.h: nvmlReturn_t
_NOT_LOADED, _MISSING, _NO_FUNCTION, _LOST, _RESET, _MISMATCH = 9, 12, 13, 15, 16, 18
_MEANINGS: dict[int | None, tuple[str, str]] = {
    None: ("", "pip install nvidia-ml-py"),
    _NOT_LOADED: ("the NVIDIA kernel driver is not loaded", "load the NVIDIA kernel driver: modprobe nvidia"),
    _MISSING: ("libnvidia-ml.so.1 is not there", "install the driver; containers: NVIDIA_DRIVER_CAPABILITIES=utility"),
    _NO_FUNCTION: ("the driver is too old", "upgrade the NVIDIA driver"),
    _LOST: ("the GPU fell off the bus", "reset the GPU, or restart the machine"),
    _RESET: ("the GPU must be reset", "nvidia-smi --gpu-reset, when nothing uses it"),
    _MISMATCH: ("library and kernel driver are of different versions", "reload the driver, or restart the machine"),
}  # fmt: skip


def _nvml_refused(answer: Mapping[str, Any]) -> BackendError:
    what, remedy = _MEANINGS.get(answer["code"], ("NVML refuses", _DOCTOR))
    kind = Unavailable if answer["code"] in _MEANINGS else BackendError
    found = answer["error"] if what else None
    return kind(what or str(answer["error"]), where=_WHERE, found=found, remedy=remedy)


def _cuda_refused(answer: Mapping[str, Any]) -> BackendError:
    if answer.get("missing"):
        remedy = "install the NVIDIA driver; in a container: run it with --gpus all"
        return Unavailable("libcuda.so.1 cannot be loaded", where=_WHERE, found=answer["error"], remedy=remedy)
    return Unavailable("the CUDA driver refuses", where=_WHERE, found=answer["error"], remedy=_DOCTOR)


NVML = Asked(_HERE / "nvml_child.py", "NVML", _WHERE, _DOCTOR, _nvml_refused)
CUDA = Asked(_HERE / "libcuda.py", "the CUDA driver", _WHERE, _DOCTOR, _cuda_refused)


def nvml_teller() -> Teller:
    """One that asks NVML: `list`, and `health` of a GPU's PCI address or a MIG instance's UUID."""
    return Teller(NVML)


def ask_cuda(within_s: float = 30.0, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What CUDA tells of its devices, asked in a child that ends with the question.

    Unavailable: no libcuda, no device, a driver too old, one that hangs (the child is killed) or crashes.
    """
    return ask_once(CUDA, "devices", within_s, environ)
