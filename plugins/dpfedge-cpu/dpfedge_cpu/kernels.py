# SPDX-License-Identifier: Apache-2.0
"""This plugin's own operators of onnxruntime: a session's options in, the same with the operators registered out.

What they compute is in `kernels/blocks.h`. It imports nothing but the standard library.
"""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from dpfedge.errors import Unavailable

__all__ = ["DOMAIN", "library", "register"]

DOMAIN = "dpfedge.cpu"
"""The operators' domain; version 1."""


def library() -> Path:
    """Where the compiled operators lie; Unavailable, saying what to do, where they were not built."""
    here = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        if (path := here / f"_kernels{suffix}").exists():
            return path
    raise Unavailable(
        "the compiled operators of dpfedge-cpu are missing", where="backend cpu", found=str(here),
        allowed=f"_kernels{EXTENSION_SUFFIXES[0]}",
        remedy="install the wheel of dpfedge-cpu, or build it, which takes a C compiler",
    )  # fmt: skip


def register(options: Any) -> None:
    """Let sessions of these options have the operators."""
    options.register_custom_ops_library(str(library()))
