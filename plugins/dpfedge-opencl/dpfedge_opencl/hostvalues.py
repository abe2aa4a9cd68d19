# SPDX-License-Identifier: Apache-2.0
"""Shape arithmetic on the host: what an operator makes of values that are known before a run, in NumPy.

It covers what exporters write between `Shape` and what reads sizes. It touches no tensor of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.tensors import TensorSpec

__all__ = ["GROWING", "HOST", "SHAPES", "evaluate", "numpy_dtype"]

_Inputs = Sequence[Array | None]
_Function = Callable[[_Inputs, Mapping[str, Any]], Sequence[Array]]
SHAPES = frozenset({"Shape", "Size"})
"""Operators that read the shape of their input and nothing else."""
GROWING = frozenset({"ConstantOfShape", "Expand", "Tile", "Pad"})
"""Operators whose results may be large although their inputs are small: the host computes them only for sizes."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of one of ours."""
    return TensorSpec("", dtype).numpy


def _need(inputs: _Inputs, index: int) -> Array:
    found = inputs[index]
    assert found is not None
    return found


def _ints(inputs: _Inputs, index: int) -> list[int] | None:
    if len(inputs) <= index or inputs[index] is None:
        return None
    return [int(value) for value in np.atleast_1d(_need(inputs, index))]


def _binary(function: Callable[..., Any]) -> _Function:
    return lambda inputs, _: [np.asarray(function(_need(inputs, 0), _need(inputs, 1)))]


def _unary(function: Callable[..., Any]) -> _Function:
    return lambda inputs, _: [np.asarray(function(_need(inputs, 0)), _need(inputs, 0).dtype)]


def _fold(function: Callable[..., Any]) -> _Function:
    def run(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
        found = _need(inputs, 0)
        for index in range(1, len(inputs)):
            found = function(found, _need(inputs, index))
        return [np.asarray(found)]

    return run


def _div(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
    a, b = _need(inputs, 0), _need(inputs, 1)
    if a.dtype.kind == "f":
        return [np.asarray(a / b)]
    return [np.asarray(np.trunc(np.true_divide(a, b)), a.dtype) if (a < 0).any() or (b < 0).any() else a // b]


def _slice(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
    data, starts, ends = _need(inputs, 0), _ints(inputs, 1) or [], _ints(inputs, 2) or []
    axes = _ints(inputs, 3) or list(range(len(starts)))
    steps = _ints(inputs, 4) or [1] * len(starts)
    index: list[slice] = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        size = data.shape[axis]
        stop: int | None = end
        if step < 0 and end < -size:
            stop = None
        index[axis] = slice(start, stop, step)
    return [np.ascontiguousarray(data[tuple(index)])]


def _reshape(inputs: _Inputs, attrs: Mapping[str, Any]) -> list[Array]:
    data, sizes = _need(inputs, 0), _ints(inputs, 1) or []
    kept = not attrs.get("allowzero", 0)
    return [data.reshape([data.shape[i] if size == 0 and kept else size for i, size in enumerate(sizes)])]


def _squeeze(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
    axes = _ints(inputs, 1)
    return [np.squeeze(_need(inputs, 0), None if axes is None else tuple(axes))]


def _unsqueeze(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
    return [np.expand_dims(_need(inputs, 0), tuple(_ints(inputs, 1) or ()))]


def _filled(inputs: _Inputs, attrs: Mapping[str, Any]) -> list[Array]:
    kind = numpy_dtype(attrs.get("dtype", "f32"))
    return [np.full(_ints(inputs, 0) or (), attrs.get("value", 0), kind)]


def _range(inputs: _Inputs, _: Mapping[str, Any]) -> list[Array]:
    start, limit, delta = (_need(inputs, index).reshape(()).item() for index in range(3))
    return [np.arange(start, limit, delta, dtype=_need(inputs, 0).dtype)]


def _reduce(function: Callable[..., Any]) -> _Function:
    def run(inputs: _Inputs, attrs: Mapping[str, Any]) -> list[Array]:
        axes = _ints(inputs, 1)
        data = _need(inputs, 0)
        if not axes and attrs.get("noop_with_empty_axes", 0):
            return [data]
        kept = bool(attrs.get("keepdims", 1))
        return [np.asarray(function(data, axis=tuple(axes) if axes else None, keepdims=kept), data.dtype)]

    return run


def _split(inputs: _Inputs, attrs: Mapping[str, Any]) -> list[Array]:
    data, sizes, axis = _need(inputs, 0), _ints(inputs, 1), int(attrs.get("axis", 0))
    if sizes is None:
        parts = int(attrs["num_outputs"])
        each = -(-data.shape[axis] // parts)
        sizes = [min(each, data.shape[axis] - each * index) for index in range(parts)]
    return list(np.split(data, np.cumsum(sizes)[:-1], axis))


HOST: Mapping[str, _Function] = {
    "Add": _binary(np.add), "Sub": _binary(np.subtract), "Mul": _binary(np.multiply), "Div": _div,
    "Mod": lambda i, a: [np.asarray((np.fmod if a.get("fmod") else np.mod)(_need(i, 0), _need(i, 1)))],
    "Pow": lambda i, _: [np.asarray(np.power(_need(i, 0), _need(i, 1)), _need(i, 0).dtype)],
    "Max": _fold(np.maximum), "Min": _fold(np.minimum), "Neg": _unary(np.negative), "Abs": _unary(np.abs),
    "Sqrt": _unary(np.sqrt), "Floor": _unary(np.floor), "Ceil": _unary(np.ceil), "Exp": _unary(np.exp),
    "Log": _unary(np.log), "Reciprocal": _unary(np.reciprocal),
    "Equal": _binary(np.equal), "Less": _binary(np.less), "LessOrEqual": _binary(np.less_equal),
    "Greater": _binary(np.greater), "GreaterOrEqual": _binary(np.greater_equal),
    "And": _binary(np.logical_and), "Or": _binary(np.logical_or), "Not": lambda i, _: [np.logical_not(_need(i, 0))],
    "Where": lambda i, _: [np.where(_need(i, 0), _need(i, 1), _need(i, 2))],
    "Cast": lambda i, a: [_need(i, 0).astype(numpy_dtype(a["to"]))],
    "Identity": lambda i, _: [_need(i, 0)],
    "Gather": lambda i, a: [np.take(_need(i, 0), _need(i, 1), axis=int(a.get("axis", 0)))],
    "Concat": lambda i, a: [np.concatenate([_need(i, n) for n in range(len(i))], int(a["axis"]))],
    "Slice": _slice, "Reshape": _reshape, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Transpose": lambda i, a: [np.ascontiguousarray(np.transpose(_need(i, 0), a.get("perm")))],
    "ConstantOfShape": _filled, "Range": _range,
    "Expand": lambda i, _: [_expand(_need(i, 0), _ints(i, 1) or [])],
    "Tile": lambda i, _: [np.tile(_need(i, 0), _ints(i, 1) or [])],
    "ReduceSum": _reduce(np.sum), "ReduceProd": _reduce(np.prod), "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min), "Split": _split,
}  # fmt: skip
"""Operator → what it makes of known inputs and its attributes."""


def _expand(data: Array, sizes: Sequence[int]) -> Array:
    shape = np.broadcast_shapes(data.shape, tuple(sizes))
    return np.ascontiguousarray(np.broadcast_to(data, shape)).reshape(shape)


def evaluate(op: str, attrs: Mapping[str, Any], inputs: _Inputs, shapes: Sequence[tuple[int, ...]]) -> Sequence[Array]:
    """The results of a host node; `shapes` are those of its inputs, which is all that `Shape` and `Size` read."""
    if op == "Shape":
        first, last = int(attrs.get("start", 0)), attrs.get("end")
        return [np.array(shapes[0][first : None if last is None else int(last)], np.int64)]
    if op == "Size":
        return [np.array(np.prod(shapes[0], dtype=np.int64))]
    return HOST[op](inputs, attrs)
