# SPDX-License-Identifier: Apache-2.0
"""One value everywhere in a tensor, written as integers of its elements' size, whatever its dtype."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.hostvalues import numpy_dtype
from dpfedge_opencl.ops.api import Emitting
from dpfedge_opencl.ops.text import UNSIGNED
from dpfedge_opencl.ops.wide import lanes_of
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["fill"]

_CPU_ITEM = 1 << 14


def fill(to: Emitting, name: str, value: float) -> None:
    """Launch a fill of the whole value."""
    target = to.value(name)
    count, size = math.prod(target.shape), DTYPE_BYTES[target.dtype]
    if not count:
        return
    pattern = int.from_bytes(np.full(1, value, numpy_dtype(target.dtype)).tobytes(), "little")
    group = 16
    if to.facts.cpu:
        parts = max(1, min(to.facts.compute_units, count // _CPU_ITEM))
        group = -(-count // parts // 16) * 16
    args: list[Tensor | Scalar] = [Tensor(name), np.uint64(pattern), np.uint64(count), np.uint64(group)]
    to.launch(_kernel(size, lanes_of(size, to.facts)), args, [-(-count // group)], (1,) if to.facts.cpu else None)


@lru_cache(maxsize=16)
def _kernel(size: int, lanes: int) -> Kernel:
    kind = UNSIGNED[size]
    return Kernel("fill", f"""
__kernel void fill(__global uchar *base, const ulong at, const ulong pattern, const ulong count, const ulong group) {{
    __global {kind} *to = (__global {kind} *)(base + at);
    const ulong start = get_global_id(0) * group;
    const ulong end = min(count, start + group);
    const {kind} one = ({kind})pattern;
    ulong place = start;
    for (; place + {lanes} <= end; place += {lanes}) vstore{lanes}(({kind}{lanes})(one), 0, to + place);
    for (; place < end; place++) to[place] = one;
}}
""")  # fmt: skip
