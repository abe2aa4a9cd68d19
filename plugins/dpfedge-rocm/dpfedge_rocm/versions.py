# SPDX-License-Identifier: Apache-2.0
"""Versions of what compiled programs depend on: ROCm's files in, library → version out; nothing is loaded."""

from __future__ import annotations

import os
import re
from pathlib import Path

from dpfedge_cpu.builds import installed_build

__all__ = ["libraries"]

_ROCM = "/opt/rocm"
_BUILDS = ("onnxruntime-migraphx", "onnxruntime-rocm", "onnxruntime")
_NUMBERS = re.compile(r"libmigraphx_c\.so\.([0-9.]+)$")


def libraries(rocm: Path | None = None) -> dict[str, str]:
    """`rocm`, `migraphx` and `onnxruntime`; `unknown` where no file tells."""
    place = rocm or Path(os.environ.get("ROCM_PATH", _ROCM))
    return {"rocm": _rocm(place), "migraphx": _migraphx(place), "onnxruntime": installed_build(_BUILDS)}


def _rocm(place: Path) -> str:
    try:
        return (place / ".info/version").read_text("utf-8", "replace").strip() or "unknown"
    except OSError:
        return "unknown"


def _migraphx(place: Path) -> str:
    """The longest number that the library is called by: `3.0.20100.70101` of ROCm 7."""
    found = [match[1] for file in sorted(place.glob("lib/libmigraphx_c.so.*")) if (match := _NUMBERS.search(file.name))]
    return max(found, key=len, default="unknown")
