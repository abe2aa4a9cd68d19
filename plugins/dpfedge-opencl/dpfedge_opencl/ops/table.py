# SPDX-License-Identifier: Apache-2.0
"""Moves whose places follow no step: one table of places for each axis, made by the host, read by one kernel.

What resizing to the nearest and mirrored edges are made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.ops.api import Emitting
from dpfedge_opencl.ops.base import contiguous
from dpfedge_opencl.ops.text import UNSIGNED
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["pad_table", "pick"]

_CPU_ITEM = 4096


def pad_table(size: int, pads: tuple[int, int], mode: str) -> Array:
    """For each index of the padded axis, the index it has its value from: `reflect`, `edge` or `wrap`."""
    places = np.arange(-pads[0], size + pads[1])
    if mode == "edge":
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    if mode != "reflect":
        raise ValueError(f"mode {mode}")
    period = max(1, 2 * (size - 1))
    folded = places % period
    return np.where(folded < size, folded, period - folded)


def pick(to: Emitting, source: str, target: str, tables: Sequence[Array], shape: Sequence[int]) -> None:
    """target[i, j, …] = source[tables[0][i], tables[1][j], …]; `shape` is the source's."""
    out = to.value(target)
    if not math.prod(out.shape):
        return
    axes = _merge(tables, shape)
    rows = math.prod(len(one) for one in axes[:-1])
    group = 1
    if to.facts.cpu:
        group = -(-rows // max(1, min(4 * to.facts.compute_units, rows * len(axes[-1]) // _CPU_ITEM)))
    args: list[Tensor | Scalar] = [Tensor(source), Tensor(target)]
    args += [Tensor(to.constant(np.asarray(one, np.int32))) for one in axes]
    args += [np.uint32(value) for value in (rows, group, *(len(one) for one in axes))]
    items = [-(-rows // group)] if to.facts.cpu else [rows, len(axes[-1])]
    kernel = _kernel(DTYPE_BYTES[out.dtype], len(axes), to.facts.cpu)
    to.launch(kernel, args, items, (1,) if to.facts.cpu else None)


def _merge(tables: Sequence[Array], shape: Sequence[int]) -> list[Array]:
    """Tables in elements; neighbours that both go straight on are one."""
    found: list[Array] = []
    straight: list[bool] = []
    for table, size, step in zip(tables, shape, contiguous(shape), strict=True):
        plain = len(table) == size and bool((table == np.arange(size)).all())
        if found and plain and straight[-1]:
            found[-1] = (found[-1][:, None] + np.arange(size) * step).reshape(-1)
            continue
        found.append(np.asarray(table) * step)
        straight.append(plain)
    return found or [np.zeros(1, np.int64)]


@lru_cache(maxsize=64)
def _kernel(size: int, axes: int, rows: bool) -> Kernel:
    kind, last = UNSIGNED[size], axes - 1
    tables = "".join(f", __global uchar *t{axis}_base, const ulong t{axis}_at" for axis in range(axes))
    sizes = "".join(f", const uint n{axis}" for axis in range(axes))
    names = "".join(
        f"__global const int *t{axis} = (__global const int *)(t{axis}_base + t{axis}_at);\n" for axis in range(axes)
    )
    places = "".join(f"at += t{axis}[rest % n{axis}]; rest /= n{axis};\n" for axis in reversed(range(last)))
    step = f"for (uint c = 0; c < n{last}; c++)" if rows else "const uint c = get_global_id(1);"
    source = f"""
__kernel void pick(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at{tables},
                   const uint rows, const uint group{sizes}) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    {names}
    const uint end = min(rows, (uint)(get_global_id(0) + 1) * group);
    for (uint row = get_global_id(0) * group; row < end; row++) {{
        long at = 0;
        uint rest = row;
        {places}
        {step} to[(ulong)row * n{last} + c] = from[at + t{last}[c]];
    }}
}}
"""
    return Kernel("pick", source)
