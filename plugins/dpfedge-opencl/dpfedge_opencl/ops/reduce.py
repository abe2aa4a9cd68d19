# SPDX-License-Identifier: Apache-2.0
"""ReduceSum, Mean, Max, Min and Prod over any axes, ArgMax and ArgMin, and the pools over all of an image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import OfFloats, widened, writing
from dpfedge_opencl.ops.source import divided, i32, kernel, launch, tensors, vector

__all__ = ["Arg", "GlobalPool", "Reduce"]

_KINDS = {"ReduceSum": 0, "ReduceMean": 0, "ReduceMax": 1, "ReduceMin": 2, "ReduceProd": 3}
_TYPES = {"f32": "float", "i32": "int", "i64": "long"}


def _groups(axes: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring axes as (first, behind the last), the last ones first."""
    found: list[tuple[int, int]] = []
    for axis in sorted(axes, reverse=True):
        if found and found[-1][0] == axis + 1:
            found[-1] = (axis, found[-1][1])
        else:
            found.append((axis, axis + 1))
    return found


def _reduce(to: Emitting, kind: int, dtype: str, shape: Sequence[int], axes: Sequence[int], x: str, y: str,
            factor: float) -> None:  # fmt: skip
    sizes, groups = list(shape), _groups(axes)
    for number, (first, end) in enumerate(groups):
        outer, n, inner = math.prod(sizes[:first]), math.prod(sizes[first:end]), math.prod(sizes[end:])
        sizes[first:end] = [1] * (end - first)
        last = number == len(groups) - 1
        target = y if last else to.scratch(dtype, sizes)
        _along(to, kind, dtype, (outer, n, inner), x, target, factor if last else 1.0)
        x = target


def _along(to: Emitting, kind: int, dtype: str, size: tuple[int, int, int], x: str, y: str, factor: float) -> None:
    outer, n, inner = size
    lanes = vector(to.facts)
    options: dict[str, str | int] = {"KIND": kind, "TYPE": _TYPES[dtype], "FLOATS": int(dtype == "f32")}
    if dtype == "f32" and inner >= lanes:
        made = kernel("rows", "reduce_columns", to.facts, **options)
        args = [*tensors((x, y)), i32(outer), i32(n), i32(inner), np.float32(factor)]
        launch(to, made, args, (divided(inner, lanes), outer))
        return
    made = kernel("rows", "reduce", to.facts, **options)
    launch(to, made, [*tensors((x, y)), i32(outer * inner), i32(n), i32(inner), np.float32(factor)], (outer * inner,))


@op(*_KINDS)
class Reduce:
    """Reductions; axes are a constant input."""

    contents = (1,)

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if len(node.inputs) > 1 and node.inputs[1] and lowering.weight(node.inputs[1]) is None:
            return "computed axes"
        if dtypes[0] not in (*_TYPES, "f16") or (node.op == "ReduceMean" and dtypes[0] not in ("f32", "f16")):
            return f"dtype {dtypes[0]}"
        return None

    def lower(self, node: Node, lowering: Lowering) -> None:
        axes = lowering.weight(node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else None
        if axes is not None:
            node.attrs["axes"] = [int(one) for one in axes.reshape(-1)]
        node.inputs = node.inputs[:1]

    def _axes(self, node: Node, rank: int) -> tuple[int, ...]:
        axes = node.attrs.get("axes") or ([] if node.attrs.get("noop_with_empty_axes") else range(rank))
        return tuple(sorted(int(one) % max(rank, 1) for one in axes))

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        axes, keep = self._axes(node, len(x.shape)), node.attrs.get("keepdims", 1)
        sizes = [1 if at in axes else size for at, size in enumerate(x.shape) if keep or at not in axes]
        return [(x.dtype, tuple(sizes))]

    def emit(self, node: Node, to: Emitting) -> None:
        value = to.value(node.inputs[0])
        axes = self._axes(node, len(value.shape))
        count = math.prod(value.shape[at] for at in axes)
        factor = 1.0 / count if node.op == "ReduceMean" and count else 1.0
        if 0 in value.shape:
            return
        with writing(to, node.outputs[0]) as y:
            dtype = "f32" if value.dtype == "f16" else value.dtype
            shape, axes = (value.shape, axes) if axes else ((*value.shape, 1), (len(value.shape),))
            _reduce(to, _KINDS[node.op], dtype, shape, axes, widened(to, node.inputs[0]), y, factor)


@op("GlobalAveragePool", "GlobalMaxPool")
class GlobalPool(OfFloats):
    """One value for each channel."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [(x.dtype, (*x.shape[:2], *[1] * (len(x.shape) - 2)))]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        mean, area = node.op == "GlobalAveragePool", math.prod(shape[2:])
        with writing(to, node.outputs[0]) as y:
            size = (shape[0] * shape[1], area, 1)
            _along(to, 0 if mean else 1, "f32", size, widened(to, node.inputs[0]), y, 1.0 / area if mean else 1.0)


@op("ArgMax", "ArgMin")
class Arg(OfFloats):
    """Where the largest or smallest element along one axis stands, as i64."""

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        axis = int(node.attrs.get("axis", 0)) % len(x.shape)
        kept = (1,) if node.attrs.get("keepdims", 1) else ()
        return [("i64", (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]

    def emit(self, node: Node, to: Emitting) -> None:
        shape = to.value(node.inputs[0]).shape
        axis = int(node.attrs.get("axis", 0)) % len(shape)
        inner = math.prod(shape[axis + 1 :])
        rows = math.prod(shape[:axis]) * inner
        made = kernel(
            "rows", "arg", to.facts, EXTREME=1 if node.op == "ArgMax" else -1,
            LAST=int(node.attrs.get("select_last_index", 0)),
        )  # fmt: skip
        names = (widened(to, node.inputs[0]), node.outputs[0])
        if rows:
            launch(to, made, [*tensors(names), i32(rows), i32(shape[axis]), i32(inner)], (rows,))
