# SPDX-License-Identifier: Apache-2.0
"""One kernel for every move that is a walk with steps: transposed, sliced, spread, laid into a larger one.

Axes that walk alike on both sides are merged first. Elements are moved as integers of their size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.ops.api import Emitting
from dpfedge_opencl.ops.text import UNSIGNED
from dpfedge_opencl.ops.wide import lanes_of, moved, vector_type
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["merge", "move"]

_CPU_ITEM = 8192
_COLUMNS = 16  # of one item where it is not a CPU's


def move(
    to: Emitting, source: str, target: str, dtype: str, sizes: Sequence[int], steps: Sequence[int],
    target_steps: Sequence[int], start: int = 0, target_start: int = 0,
) -> None:  # fmt: skip
    """target[target_start + Σ i·target_steps] = source[start + Σ i·steps] for every i below `sizes`, in elements."""
    if not math.prod(sizes):
        return
    axes, rows, inner = merge(tuple(sizes), tuple(steps), tuple(target_steps))
    unit = inner[1] == inner[2] == 1
    size = DTYPE_BYTES[dtype]
    kernel = _kernel(size, len(axes), unit, lanes_of(size, to.facts), to.facts.cpu)
    group, columns, items = _split(rows, inner[0], to)
    args: list[Tensor | Scalar] = [Tensor(source), Tensor(target)]
    args += [np.int64(start), np.int64(target_start)]
    args += [np.uint32(value) for value in (rows, inner[0], group, columns)]
    args += [np.int32(inner[1]), np.int32(inner[2])]
    for size, step, target_step in axes:
        args += [np.uint32(size), np.int32(step), np.int32(target_step)]
    to.launch(kernel, args, items, (1, 1) if to.facts.cpu else None)


def _split(rows: int, inner: int, to: Emitting) -> tuple[int, int, tuple[int, int]]:
    """(rows of one item, columns of one, the global size)."""
    if not to.facts.cpu:
        return 1, _COLUMNS, (-(-inner // _COLUMNS), rows)
    parts = max(1, min(4 * to.facts.compute_units, rows * inner // _CPU_ITEM))
    if rows >= parts:
        group = -(-rows // parts)
        return group, inner, (1, -(-rows // group))
    columns = -(-inner * rows // parts // _COLUMNS) * _COLUMNS or _COLUMNS
    return 1, columns, (-(-inner // columns), rows)


@lru_cache(maxsize=4096)
def merge(
    sizes: tuple[int, ...], steps: tuple[int, ...], target_steps: tuple[int, ...]
) -> tuple[tuple[tuple[int, int, int], ...], int, tuple[int, int, int]]:
    """(outer axes as (size, step, target step), rows they make, the innermost axis)."""
    found: list[tuple[int, int, int]] = []
    for size, step, target in zip(sizes, steps, target_steps, strict=True):
        if size == 1:
            continue
        if found and found[-1][1] == step * size and found[-1][2] == target * size:
            found[-1] = (found[-1][0] * size, step, target)
        else:
            found.append((size, step, target))
    if not found:
        return (), 1, (1, 1, 1)
    return tuple(found[:-1]), math.prod(one[0] for one in found[:-1]), found[-1]


@lru_cache(maxsize=64)
def _kernel(size: int, outer: int, unit: bool, lanes: int, cpu: bool) -> Kernel:
    kind = UNSIGNED[size]
    axes = "".join(f", const uint n{axis}, const int s{axis}, const int d{axis}" for axis in range(outer))
    places = "".join(
        f"{{ const long i = rest % n{axis}; rest /= n{axis}; at += i * s{axis}; put += i * d{axis}; }}\n"
        for axis in reversed(range(outer))
    )
    inner = f"""uint c = first;
        for (; c + {lanes} <= end; c += {lanes}) {moved(lanes, "from + at + c", "to + put + c", cpu)}
        for (; c < end; c++) to[put + c] = from[at + c];""" if unit else """
        for (uint c = first; c < end; c++) to[put + (long)c * put_step] = from[at + (long)c * step];"""  # fmt: skip
    source = f"""{vector_type(kind, lanes, cpu)}
__kernel void move(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at,
                   const long start, const long put_start, const uint rows, const uint inner, const uint group,
                   const uint columns, const int step, const int put_step{axes}) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    const uint last = min(rows, (uint)(get_global_id(1) + 1) * group);
    const uint first = get_global_id(0) * columns;
    const uint end = min(inner, first + columns);
    for (uint row = get_global_id(1) * group; row < last; row++) {{
        long at = start, put = put_start;
        uint rest = row;
        {places}{inner}
    }}
}}
"""
    return Kernel("move", source)
