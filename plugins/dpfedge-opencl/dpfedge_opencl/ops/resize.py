# SPDX-License-Identifier: Apache-2.0
"""Resize: to the nearest element by tables of places, linear by two places and a weight along each axis that changes.

Coordinates are worked out on the host, as ONNX's reference does; kernels know none of its modes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import Moving, axis_of, have, need
from dpfedge_opencl.ops.table import pick
from dpfedge_opencl.plan import Kernel, Scalar, Tensor

__all__ = ["Resize", "coordinates"]

_MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")


def coordinates(mode: str, size: int, whole: int, scale: float) -> Array:
    """f64: for each of `whole` places of the result, the place in an axis of `size` it comes from."""
    places = np.arange(whole, dtype=np.float64)
    if mode == "align_corners":
        return places * (size - 1) / (whole - 1) if whole > 1 else places * 0
    if mode == "asymmetric":
        return places / scale
    if mode == "pytorch_half_pixel" and whole == 1:
        return places * 0
    if mode == "half_pixel_symmetric":
        shift = size / 2 * (1 - whole / (scale * size))
        return shift + (places + 0.5) / scale - 0.5
    return (places + 0.5) / scale - 0.5


def _nearest(found: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(found)
    if mode == "ceil":
        return np.ceil(found)
    if mode == "round_prefer_ceil":
        return np.floor(found + 0.5)
    return np.ceil(found - 0.5)


@op("Resize")
class Resize(Moving):
    """Nearest for any dtype, linear for f32."""

    contents = (1, 2, 3)

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        """No cubic, no antialiasing, no crop."""
        mode, how = node.attrs.get("mode", "nearest"), node.attrs.get("coordinate_transformation_mode", "half_pixel")
        if mode not in ("nearest", "linear") or how not in _MODES:
            return f"mode {mode}, {how}"
        if node.attrs.get("antialias") or node.attrs.get("exclude_outside"):
            return "antialias or exclude_outside"
        if node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return "keep_aspect_ratio_policy"
        if mode == "linear" and dtypes[0] != "f32":
            return f"linear for dtype {dtypes[0]}"
        return super().supports(node, dtypes, lowering)

    def _sizes(self, attrs: Mapping[str, Any], data: Value, scales: Value | None, sizes: Value | None) -> tuple[
        tuple[int, ...], list[float]
    ]:  # fmt: skip
        """(the result's shape, scale of each axis)."""
        axes = [axis_of(axis, len(data.shape)) for axis in attrs.get("axes", range(len(data.shape)))]
        shape, factors = list(data.shape), [1.0] * len(data.shape)
        if scales is not None and scales.known is not None and scales.known.size:
            for axis, scale in zip(axes, scales.known.reshape(-1), strict=True):
                shape[axis], factors[axis] = math.floor(data.shape[axis] * np.float32(scale)), float(scale)
        elif sizes is not None and sizes.known is not None:
            for axis, size in zip(axes, sizes.known.reshape(-1), strict=True):
                shape[axis], factors[axis] = int(size), int(size) / data.shape[axis]
        else:
            raise ValueError("neither scales nor sizes are known")
        return tuple(shape), factors

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        """Sizes, or floors of scaled sizes."""
        parts = [inputs[index] if index < len(inputs) else None for index in (2, 3)]
        return [(need(inputs).dtype, self._sizes(node.attrs, need(inputs), *parts)[0])]

    def emit(self, node: Node, to: Emitting) -> None:
        """A view where nothing changes."""
        data, out = to.value(node.inputs[0]), to.value(node.outputs[0])
        parts = [to.value(name) if (name := have(node, index)) else None for index in (2, 3)]
        _, factors = self._sizes(node.attrs, data, *parts)
        if data.shape == out.shape and to.alias(out.name, data.name):
            return
        how = node.attrs.get("coordinate_transformation_mode", "half_pixel")
        places = [coordinates(how, *one) for one in zip(data.shape, out.shape, factors, strict=True)]
        if node.attrs.get("mode", "nearest") == "nearest":
            rule = node.attrs.get("nearest_mode", "round_prefer_floor")
            tables = [
                np.clip(_nearest(one, rule), 0, size - 1).astype(np.int64)
                for one, size in zip(places, data.shape, strict=True)
            ]
            pick(to, data.name, out.name, tables, data.shape)
            return
        self._linear(to, data, out, places)

    def _linear(self, to: Emitting, data: Value, out: Value, places: Sequence[Array]) -> None:
        """One pass for each axis that changes, the smallest results first."""
        axes = [axis for axis, (size, whole) in enumerate(zip(data.shape, out.shape, strict=True)) if size != whole]
        axes.sort(key=lambda axis: out.shape[axis] / data.shape[axis])
        name, shape = data.name, list(data.shape)
        for index, axis in enumerate(axes):
            shape[axis] = out.shape[axis]
            target = out.name if index == len(axes) - 1 else to.scratch("f32", shape)
            found = np.clip(places[axis], 0, data.shape[axis] - 1)
            first = np.minimum(np.floor(found), max(0, data.shape[axis] - 2)).astype(np.int32)
            weight = (found - first).astype(np.float32) if data.shape[axis] > 1 else np.zeros(len(found), np.float32)
            inner, outer = math.prod(shape[axis + 1 :]), math.prod(shape[:axis])
            args: list[Tensor | Scalar] = [Tensor(name), Tensor(target)]
            args += [Tensor(to.constant(first)), Tensor(to.constant(weight))]
            args += [np.uint32(size) for size in (data.shape[axis], shape[axis], inner)]
            to.launch(_linear_kernel(), args, [outer * shape[axis]], (1,) if to.facts.cpu else None)
            name = target


@lru_cache(maxsize=1)
def _linear_kernel() -> Kernel:
    return Kernel("linear", """
__kernel void linear(__global uchar *from_base, const ulong from_at, __global uchar *to_base, const ulong to_at,
                     __global uchar *first_base, const ulong first_at, __global uchar *weight_base,
                     const ulong weight_at, const uint size, const uint whole, const uint inner) {
    const uint row = get_global_id(0);
    const uint place = row % whole;
    const int first = ((__global const int *)(first_base + first_at))[place];
    const float weight = ((__global const float *)(weight_base + weight_at))[place];
    __global const float *from = (__global const float *)(from_base + from_at);
    __global const float *a = from + ((ulong)(row / whole) * size + first) * inner;
    __global const float *b = a + (size > 1 ? inner : 0);
    __global float *to = (__global float *)(to_base + to_at) + (ulong)row * inner;
    uint c = 0;
    for (; c + 8 <= inner; c += 8) vstore8(mix(vload8(0, a + c), vload8(0, b + c), weight), 0, to + c);
    for (; c < inner; c++) to[c] = mix(a[c], b[c], weight);
}
""")  # fmt: skip
