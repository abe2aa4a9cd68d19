# SPDX-License-Identifier: Apache-2.0
"""Libraries of execution providers: installed builds of onnxruntime in, those that are missing or cannot be loaded out.

A provider is listed when its file is there; whether the loader finds what it needs only loading tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from dpfedge.backend.loader import load_error, missing_library
from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.doctor.wheels import Wheel, wheels

__all__ = ["check_lacking", "check_providers"]

_PREFIX = "libonnxruntime_providers_"
_PROVIDERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cuda": ("CUDAExecutionProvider", ("cuda", "jetson")),
    "tensorrt": ("TensorrtExecutionProvider", ("cuda", "jetson")),
    "migraphx": ("MIGraphXExecutionProvider", ("rocm",)),
    "rocm": ("ROCMExecutionProvider", ("rocm",)),
    "openvino": ("OpenVINOExecutionProvider", ()),
}
_OPTIONAL = {"tensorrt": "install TensorRT 10, if it is to be used"}
_NEEDED: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "gpu.nvidia": (
        "cuda", ("cuda", "jetson"), "pip install 'onnxruntime-gpu[cuda,cudnn]'; for Jetson that of its JetPack's index",
    ),
    "gpu.amd": ("migraphx", ("rocm",), "pip install onnxruntime-migraphx"),
}  # fmt: skip
"""Kind of GPU → the provider that its backends load graphs with, and where it comes from."""
_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


def check_lacking(surroundings: Surroundings, wanted: Set[str]) -> Iterator[Finding]:
    """A GPU whose backend is wanted, and no build of onnxruntime that knows it: plain `onnxruntime` is for CPUs."""
    found = wheels(surroundings)
    kinds = {kind for wheel in found for kind in _kinds(wheel)}
    for gpu in sorted({gpu.kind for gpu in surroundings.machine.accelerators} & _NEEDED.keys()) if found else ():
        kind, backends, remedy = _NEEDED[gpu]
        if kind not in kinds and (mine := sorted(wanted & set(backends))):
            where, names = ", ".join(wheel.title for wheel in found), " ".join(wheel.name for wheel in found)
            what = f"{_PROVIDERS[kind][0]} is not in it, and backend {' or '.join(mine)} loads nothing without"
            yield Finding("providers", "fault", where, what, f"pip uninstall -y {names}, then {remedy}", backends)


def _kinds(wheel: Wheel) -> Mapping[str, Path]:
    """The providers that are files of a build of onnxruntime."""
    files = sorted((wheel.folder / "onnxruntime" / "capi").glob(f"{_PREFIX}*.so"))
    return {file.stem.removeprefix(_PREFIX): file for file in files}


def check_providers(surroundings: Surroundings) -> Iterator[Finding]:
    """A provider whose library, or one that it needs, cannot be loaded here; of a recording nothing can be said."""
    if not surroundings.root.live:
        return
    for wheel in wheels(surroundings):
        for kind, file in _kinds(wheel).items():
            files = (file.with_name(f"{_PREFIX}shared.so"), file)
            if kind in _PROVIDERS and (error := load_error(files, _paths(wheel))):
                yield _unloadable(wheel, kind, error)


def _unloadable(wheel: Wheel, kind: str, error: str) -> Finding:
    """A provider that cannot be loaded: a note where graphs run without it, too."""
    name, backends = _PROVIDERS[kind]
    missing = missing_library(error)
    what = f"{name} is listed and cannot be loaded: {f'{missing} is missing' if missing else error}"
    if kind in _OPTIONAL:
        return Finding("providers", "note", wheel.title, what, _OPTIONAL[kind], backends)
    remedy = "install its vendor's libraries"
    if missing in _DRIVER:
        remedy = "install the NVIDIA driver; in a container: run it with --gpus all"
    elif "cuda" in backends:
        remedy = f"pip install '{wheel.name}[cuda,cudnn]'"
    return Finding("providers", "fault", wheel.title, what, remedy, backends)


def _paths(wheel: Wheel) -> list[Path]:
    """Where wheels of NVIDIA's libraries keep them."""
    return sorted((wheel.folder / "nvidia").glob("*/lib"))
