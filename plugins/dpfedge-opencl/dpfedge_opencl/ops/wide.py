# SPDX-License-Identifier: Apache-2.0
"""Vectors of any element for generated kernels: how many lanes a register of the device holds, and how they move.

A vector wider than the registers is worse than slow: see `lanes.py`.
"""

from __future__ import annotations

from dpfedge_opencl.ops.api import Facts

__all__ = ["lanes_of", "loaded", "moved", "vector_type"]


def lanes_of(size: int, facts: Facts) -> int:
    """Lanes of a vector of elements of `size` bytes: as many as lie in a register of floats, 2 to 16."""
    return max(2, min(16, 4 * facts.vector_width // size))


def vector_type(kind: str, lanes: int, cpu: bool) -> str:
    """Text that declares `WIDE`, a vector that lies anywhere; nothing but for a CPU, which reads unaligned memory."""
    return f"typedef {kind}{lanes} __attribute__((aligned(sizeof({kind})))) WIDE;\n" if cpu else ""


def loaded(lanes: int, at: str, cpu: bool) -> str:
    """A vector from the pointer `at`. PoCL's vloadN is a call, which costs every vector register."""
    return f"(*(__global const WIDE *)({at}))" if cpu else f"vload{lanes}(0, {at})"


def moved(lanes: int, source: str, target: str, cpu: bool) -> str:
    """A statement that moves a vector from one pointer to another."""
    value = loaded(lanes, source, cpu)
    return f"*(__global WIDE *)({target}) = {value};" if cpu else f"vstore{lanes}({value}, 0, {target});"
