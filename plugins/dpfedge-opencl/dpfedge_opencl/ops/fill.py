# SPDX-License-Identifier: Apache-2.0
"""One value everywhere in a tensor: written as a pattern of eight bytes, whatever its dtype."""

from __future__ import annotations

import math

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.hostvalues import numpy_dtype
from dpfedge_opencl.ops.api import Emitting
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["fill"]

_SOURCE = """
__kernel void fill(__global uchar *base, const ulong at, const ulong pattern, const ulong size, const ulong group) {
    __global uchar *to = base + at;
    const ulong start = get_global_id(0) * group;
    const ulong end = min(size, start + group);
    const uchar8 one = as_uchar8(pattern);
    const uchar16 two = (uchar16)(one, one);
    ulong place = start;
    for (; place + 16 <= end; place += 16) vstore16(two, 0, to + place);
    for (; place < end; place++) to[place] = (uchar)(pattern >> (8 * (place & 7)));
}
"""
_KERNEL = Kernel("fill", _SOURCE)
_CPU_BYTES = 1 << 16


def fill(to: Emitting, name: str, value: float) -> None:
    """Launch a fill of the whole value."""
    target = to.value(name)
    kind = numpy_dtype(target.dtype)
    size = math.prod(target.shape) * DTYPE_BYTES[target.dtype]
    if not size:
        return
    pattern = np.full(8 // kind.itemsize, value, kind).view(np.uint64)[0]
    group = 64
    if to.facts.cpu:
        parts = max(1, min(to.facts.compute_units, size // _CPU_BYTES))
        group = -(-size // parts // 64) * 64
    args: list[Tensor | Scalar] = [Tensor(name), np.uint64(pattern), np.uint64(size), np.uint64(group)]
    to.launch(_KERNEL, args, [-(-size // group)], (1,) if to.facts.cpu else None)
