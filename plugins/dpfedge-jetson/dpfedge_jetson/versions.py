# SPDX-License-Identifier: Apache-2.0
"""Versions of what engines depend on: JetPack's files in, library → version out; nothing is loaded."""

from __future__ import annotations

import re
from pathlib import Path

from dpfedge_cpu.builds import installed_build

__all__ = ["libraries"]

_FOLDERS = ("usr/lib/aarch64-linux-gnu", "usr/lib", "usr/local/lib")
_FILES = {"tensorrt": "libnvinfer.so", "cudnn": "libcudnn.so"}
_NUMBERS = re.compile(r"\.so\.([0-9]+(?:\.[0-9]+)+)$")
_BUILDS = ("onnxruntime-gpu", "onnxruntime")


def libraries(root: Path = Path("/")) -> dict[str, str]:
    """`tensorrt`, `cudnn` and `onnxruntime`; `unknown` where no file tells."""
    return {**{name: _number(root, file) for name, file in _FILES.items()}, "onnxruntime": installed_build(_BUILDS)}


def _number(root: Path, file: str) -> str:
    """The longest number that a library is called by: `10.3.0`."""
    names = [path.name for folder in _FOLDERS for path in sorted((root / folder).glob(f"{file}.*"))]
    return max((match[1] for name in names if (match := _NUMBERS.search(name))), key=len, default="unknown")
