# SPDX-License-Identifier: Apache-2.0
"""A copy of whole tensors, as integers of their elements' size: what an operator does that could not make a view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.ops.api import Emitting, Facts
from dpfedge_opencl.ops.text import UNSIGNED
from dpfedge_opencl.ops.wide import lanes_of, moved, vector_type
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["copy", "copy_args"]

_CPU_ITEM = 1 << 14


def copy_args(
    source: str, target: str, count: int, size: int, facts: Facts
) -> tuple[Kernel, Sequence[Tensor | Scalar], Sequence[int], Sequence[int] | None]:
    """Kernel, arguments, global and local size that copy `count` elements of `size` bytes."""
    group = 16
    if facts.cpu:
        parts = max(1, min(facts.compute_units, count // _CPU_ITEM))
        group = -(-count // parts // 16) * 16 or 16
    args: list[Tensor | Scalar] = [Tensor(source), Tensor(target), np.uint64(count), np.uint64(group)]
    return _kernel(size, lanes_of(size, facts), facts.cpu), args, [-(-count // group)], (1,) if facts.cpu else None


def copy(to: Emitting, source: str, target: str) -> None:
    """Launch a copy of the whole of the first value into the second, of the same dtype and as many elements."""
    value = to.value(target)
    if count := math.prod(value.shape):
        to.launch(*copy_args(source, target, count, DTYPE_BYTES[value.dtype], to.facts))


@lru_cache(maxsize=16)
def _kernel(size: int, lanes: int, cpu: bool) -> Kernel:
    kind = UNSIGNED[size]
    return Kernel("copy", f"""
{vector_type(kind, lanes, cpu)}
__kernel void copy(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at,
                   const ulong count, const ulong group) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    const ulong start = get_global_id(0) * group;
    const ulong end = min(count, start + group);
    ulong at = start;
    for (; at + {lanes} <= end; at += {lanes}) {moved(lanes, "from + at", "to + at", cpu)}
    for (; at < end; at++) to[at] = from[at];
}}
""")  # fmt: skip
