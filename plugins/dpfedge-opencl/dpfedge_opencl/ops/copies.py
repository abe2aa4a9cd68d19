# SPDX-License-Identifier: Apache-2.0
"""A copy of whole tensors, byte by byte: what an operator does that could not make a view."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpfedge_opencl.ops.api import Emitting, Facts
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["copy", "copy_args"]

_SOURCE = """
__kernel void copy(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at,
                   const ulong size, const ulong group) {
    __global const uchar *from = from_base + from_at;
    __global uchar *to = to_base + to_at;
    const ulong start = get_global_id(0) * group;
    const ulong end = min(size, start + group);
    ulong at = start;
    for (; at + 64 <= end; at += 64) {
        const uchar16 a = vload16(0, from + at), b = vload16(1, from + at);
        const uchar16 c = vload16(2, from + at), d = vload16(3, from + at);
        vstore16(a, 0, to + at); vstore16(b, 1, to + at); vstore16(c, 2, to + at); vstore16(d, 3, to + at);
    }
    for (; at < end; at++) to[at] = from[at];
}
"""
_KERNEL = Kernel("copy", _SOURCE)
_CPU_BYTES = 1 << 16


def copy_args(
    source: str, target: str, size: int, facts: Facts
) -> tuple[Kernel, Sequence[Tensor | Scalar], Sequence[int], Sequence[int] | None]:
    """Kernel, arguments, global and local size that copy `size` bytes."""
    group = 64
    if facts.cpu:
        parts = max(1, min(facts.compute_units, size // _CPU_BYTES))
        group = -(-size // parts // 64) * 64 or 64
    return (
        _KERNEL,
        [Tensor(source), Tensor(target), np.uint64(size), np.uint64(group)],
        [-(-size // group)],
        (1,) if facts.cpu else None,
    )


def copy(to: Emitting, source: str, target: str, size: int) -> None:
    """Launch a copy of `size` bytes from the first to the second value's memory."""
    if size:
        to.launch(*copy_args(source, target, size, to.facts))
