# SPDX-License-Identifier: Apache-2.0
"""Operators that read or write at places which are values: Gather…, Scatter….

An index out of range is brought into it: a kernel must not read memory that is not its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from dpfedge.tensors import DTYPE_BYTES
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import Moving, axis_of, contiguous, need
from dpfedge_opencl.ops.copies import copy
from dpfedge_opencl.ops.text import UNSIGNED
from dpfedge_opencl.ops.wide import lanes_of, moved, vector_type
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"]

_Shapes = Sequence[tuple[str, tuple[int, ...]]]
_INDICES = {"i32": "int", "i64": "long"}
_CPU_ITEM = 4096

_PRELUDE = """
static long dpf_place(long index, long size) {
    index += index < 0 ? size : 0;
    return clamp(index, 0L, size - 1);
}
"""


class _Indexed(Moving):
    """Indices are i32 or i64."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """Any dtype of values, two of indices, and no sums at the places."""
        if node.attrs.get("reduction", "none") != "none":
            return f"reduction {node.attrs['reduction']}"
        return super().supports(node, dtypes, lowering) or (
            None if dtypes[1] in _INDICES else f"indices of dtype {dtypes[1]}"
        )


def _grid(to: Emitting, rows: int, inner: int) -> tuple[int, tuple[int, int]]:
    """(rows of one item, the global size)."""
    if not to.facts.cpu:
        return 1, (rows, inner)
    group = -(-rows // max(1, min(4 * to.facts.compute_units, rows * inner // _CPU_ITEM)))
    return group, (-(-rows // group), 1)


def _launch(to: Emitting, kernel: Kernel, args: Sequence[Tensor | Scalar], items: tuple[int, int]) -> None:
    to.launch(kernel, args, items, (1, 1) if to.facts.cpu else None)


@lru_cache(maxsize=256)
def _rows_kernel(size: int, index: str, body: str, extra: str, lanes: int, cpu: bool) -> Kernel:
    """A kernel over rows of `inner` elements; `body` makes `from`'s and `to`'s places of a row: `at` and `put`."""
    kind = UNSIGNED[size]
    walk = (
        f"uint c = 0; for (; c + {lanes} <= inner; c += {lanes}) {moved(lanes, 'from + at + c', 'to + put + c', cpu)}"
        " for (; c < inner; c++) to[put + c] = from[at + c];"
        if cpu else "const uint c = get_global_id(1); to[put + c] = from[at + c];"
    )  # fmt: skip
    source = f"""{vector_type(kind, lanes, cpu)}{_PRELUDE}
__kernel void rows(__global uchar *from_base, const ulong from_at, __global uchar *index_base, const ulong index_at,
                   __global uchar *to_base, const ulong to_at, const uint rows, const uint group,
                   const uint inner{extra}) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global const {index} *indices = (__global const {index} *)(index_base + index_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    const uint last = min(rows, (uint)(get_global_id(0) + 1) * group);
    for (uint row = get_global_id(0) * group; row < last; row++) {{
        long at, put;
        {body}
        {walk}
    }}
}}
"""
    return Kernel("rows", source)


def _rows(
    to: Emitting, names: tuple[str, str, str], rows: int, inner: int, body: str, extra: Sequence[tuple[str, int]]
) -> None:
    """Launch such a kernel; `extra` are further sizes by name."""
    if not rows or not inner:
        return
    size, index = DTYPE_BYTES[to.value(names[0]).dtype], _INDICES[to.value(names[1]).dtype]
    group, items = _grid(to, rows, inner)
    declared = "".join(f", const uint {name}" for name, _ in extra)
    kernel = _rows_kernel(size, index, body, declared, lanes_of(size, to.facts), to.facts.cpu)
    args: list[Tensor | Scalar] = [Tensor(name) for name in names]
    args += [np.uint32(value) for value in (rows, group, inner, *(value for _, value in extra))]
    _launch(to, kernel, args, items)


@op("Gather")
class Gather(_Indexed):
    """Slices along one axis, in the order of the indices."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The axis is replaced by the indices' shape."""
        data, at = need(inputs), need(inputs, 1)
        axis = axis_of(node.attrs.get("axis", 0), len(data.shape))
        return [(data.dtype, (*data.shape[:axis], *at.shape, *data.shape[axis + 1 :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A row for each index and each place before the axis; a view for one index that is known."""
        data, at, out = to.value(node.inputs[0]), to.value(node.inputs[1]), to.value(node.outputs[0])
        axis = axis_of(node.attrs.get("axis", 0), len(data.shape))
        outer, inner = math.prod(data.shape[:axis]), math.prod(data.shape[axis + 1 :])
        size, count = data.shape[axis], math.prod(at.shape)
        if outer == count == 1 and at.known is not None:
            place = int(at.known.reshape(-1)[0]) % size
            if to.alias(out.name, data.name, place * inner * DTYPE_BYTES[data.dtype]):
                return
        body = """const long place = dpf_place(indices[row % count], size);
        at = ((long)(row / count) * size + place) * inner; put = (long)row * inner;"""
        _rows(to, (data.name, at.name, out.name), outer * count, inner, body, [("count", count), ("size", size)])


@op("GatherND")
class GatherND(_Indexed):
    """Slices at tuples of indices."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The indices' shape without the tuples, and what is behind their places."""
        data, at = need(inputs), need(inputs, 1)
        behind = node.attrs.get("batch_dims", 0) + at.shape[-1]
        return [(data.dtype, (*at.shape[:-1], *data.shape[behind:]))]

    def emit(self, node: Node, to: Emitting) -> None:
        """A row for each tuple."""
        data, at, out = to.value(node.inputs[0]), to.value(node.inputs[1]), to.value(node.outputs[0])
        batch, width = node.attrs.get("batch_dims", 0), at.shape[-1]
        inner = math.prod(data.shape[batch + width :])
        rows = math.prod(at.shape[:-1])
        each = rows // math.prod(at.shape[:batch]) if rows else 1
        sizes = [(f"n{axis}", size) for axis, size in enumerate(data.shape[batch : batch + width])]
        body = "at = row / each;" + _tuple(width) + " at *= inner; put = (long)row * inner;"
        _rows(to, (data.name, at.name, out.name), rows, inner, body, [("each", each), *sizes])


def _tuple(width: int) -> str:
    return "".join(
        f" at = at * n{axis} + dpf_place(indices[(ulong)row * {width} + {axis}], n{axis});" for axis in range(width)
    )


@op("ScatterND")
class ScatterND(_Indexed):
    """A copy of the data with slices written at tuples of indices."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The data's."""
        return [(need(inputs).dtype, need(inputs).shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        """A copy, then a row for each tuple."""
        data, at, new = (to.value(name) for name in node.inputs)
        out = to.value(node.outputs[0])
        copy(to, data.name, out.name)
        width = at.shape[-1]
        inner = math.prod(data.shape[width:])
        sizes = [(f"n{axis}", size) for axis, size in enumerate(data.shape[:width])]
        body = "at = 0;" + _tuple(width) + " put = at * inner; at = (long)row * inner;"
        _rows(to, (new.name, at.name, out.name), math.prod(at.shape[:-1]), inner, body, sizes)


class _Elements(_Indexed):
    """Each element at a place along one axis: data and indices may differ in size everywhere."""

    def _launch(self, node: Node, to: Emitting, values: Value, at: Value, out: Value, *, write: bool) -> None:
        shape = at.shape
        if not math.prod(shape):
            return
        data = out if write else values
        axis = axis_of(node.attrs.get("axis", 0), len(shape))
        steps = contiguous(data.shape)
        group, items = _grid(to, math.prod(shape), 1)
        kernel = _elements_kernel(DTYPE_BYTES[data.dtype], _INDICES[at.dtype], len(shape), write)
        args: list[Tensor | Scalar] = [Tensor(values.name), Tensor(at.name), Tensor(out.name)]
        args += [np.uint32(value) for value in (math.prod(shape), group, data.shape[axis], steps[axis])]
        for place, (size, step) in enumerate(zip(shape, steps, strict=True)):
            args += [np.uint32(size), np.uint32(0 if place == axis else step)]
        _launch(to, kernel, args, items)


@lru_cache(maxsize=64)
def _elements_kernel(size: int, index: str, rank: int, write: bool) -> Kernel:
    kind = UNSIGNED[size]
    axes = "".join(f", const uint n{axis}, const uint s{axis}" for axis in range(rank))
    places = "".join(f"at += (long)(rest % n{axis}) * s{axis}; rest /= n{axis};\n" for axis in reversed(range(rank)))
    step = "to[at] = from[row];" if write else "to[row] = from[at];"
    source = f"""{_PRELUDE}
__kernel void elements(__global uchar *from_base, const ulong from_at, __global uchar *index_base, const ulong index_at,
                       __global uchar *to_base, const ulong to_at, const uint rows, const uint group, const uint size,
                       const uint step{axes}) {{
    __global const {kind} *from = (__global const {kind} *)(from_base + from_at);
    __global const {index} *indices = (__global const {index} *)(index_base + index_at);
    __global {kind} *to = (__global {kind} *)(to_base + to_at);
    const uint last = min(rows, (uint)(get_global_id(0) + 1) * group);
    for (uint row = get_global_id(0) * group; row < last; row++) {{
        uint rest = row;
        long at = dpf_place(indices[row], size) * step;
        {places}{step}
    }}
}}
"""
    return Kernel("elements", source)


@op("GatherElements")
class GatherElements(_Elements):
    """One element for each index."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The indices'."""
        return [(need(inputs).dtype, need(inputs, 1).shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        """An item for each index."""
        data, at = (to.value(name) for name in node.inputs)
        self._launch(node, to, data, at, to.value(node.outputs[0]), write=False)


@op("ScatterElements")
class ScatterElements(_Elements):
    """A copy of the data with one element written for each index."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> _Shapes:
        """The data's."""
        return [(need(inputs).dtype, need(inputs).shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        """A copy, then an item for each index."""
        data, at, new = (to.value(name) for name in node.inputs)
        out = to.value(node.outputs[0])
        copy(to, data.name, out.name)
        self._launch(node, to, new, at, out, write=True)
