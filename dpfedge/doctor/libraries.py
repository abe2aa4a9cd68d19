# SPDX-License-Identifier: Apache-2.0
"""Libraries of execution providers: installed builds of onnxruntime in, those the loader cannot load out.

A provider is listed when its file is there; whether the loader finds what it needs only loading tells. That is done in
a child process with a time limit: a driver that hangs or crashes takes the child with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.doctor.wheels import Wheel, wheels

__all__ = ["check_providers", "load_error"]

_TIMEOUT_S = 20.0
_PREFIX = "libonnxruntime_providers_"
_PROVIDERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cuda": ("CUDAExecutionProvider", ("cuda", "jetson")),
    "tensorrt": ("TensorrtExecutionProvider", ("cuda", "jetson")),
    "migraphx": ("MIGraphXExecutionProvider", ("rocm",)),
    "rocm": ("ROCMExecutionProvider", ("rocm",)),
    "openvino": ("OpenVINOExecutionProvider", ()),
}
_CODE = "import ctypes, sys\nfor path in sys.argv[1:]:\n    ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)\n"
_MISSING = re.compile(r"(\S+): cannot open shared object file")


def check_providers(surroundings: Surroundings) -> Iterator[Finding]:
    """A provider whose library, or one that it needs, cannot be loaded here; of a recording nothing can be said."""
    if not surroundings.root.live:
        return
    for wheel in wheels(surroundings):
        folder = wheel.folder / "onnxruntime" / "capi"
        for file in sorted(folder.glob(f"{_PREFIX}*.so")):
            known = _PROVIDERS.get(file.stem.removeprefix(_PREFIX))
            if known is not None and (error := load_error(folder / f"{_PREFIX}shared.so", file, _paths(wheel))):
                match = _MISSING.search(error)
                lacks = f"{match[1]} is missing" if match else error
                cuda = f"pip install '{wheel.name}[cuda,cudnn]'" if "cuda" in known[1] else ""
                what = f"{known[0]} is listed and cannot be loaded: {lacks}"
                remedy = cuda or "install its vendor's libraries"
                yield Finding("providers", "fault", wheel.title, what, remedy, known[1])


def _paths(wheel: Wheel) -> tuple[str, ...]:
    """Where wheels of NVIDIA's libraries keep them."""
    return tuple(str(path) for path in sorted((wheel.folder / "nvidia").glob("*/lib")))


def load_error(shared: Path, library: Path, paths: tuple[str, ...] = ()) -> str:
    """Why the loader cannot load `library` after `shared`; empty when it can."""
    environ = {**os.environ, "LD_LIBRARY_PATH": ":".join([*paths, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")}
    files = [str(path) for path in (shared, library) if path.exists()]
    try:
        done = subprocess.run(
            [sys.executable, "-c", _CODE, *files], env=environ, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"loading it takes more than {_TIMEOUT_S:g} s"
    if done.returncode < 0:
        return f"loading it ends the process by signal {-done.returncode}"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it fails without a word"])[-1]
