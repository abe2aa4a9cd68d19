# SPDX-License-Identifier: Apache-2.0
"""Between floats and 8-bit codes: DynamicQuantizeLinear, QuantizeLinear, DequantizeLinear."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.source import divided, i32, kernel, launch, tensors

__all__ = ["Dequantise", "DynamicQuantise", "Quantise", "quantise"]

_TYPES = {"u8": ("uchar", 0, 255), "i8": ("char", -128, 127), "i32": ("int", 0, 0)}


def quantise(to: Emitting, x: str, results: Sequence[str]) -> None:
    """Codes, scale and zero of `x`, as DynamicQuantizeLinear has them."""
    count = math.prod(to.value(x).shape)
    each = 8192 if to.facts.cpu else 64
    number = divided(count, each)
    pieces = x
    if number > 1:
        pieces = to.scratch("f32", (2 * number,))
        launch(to, kernel("bytes", "range", to.facts, EACH=each), [*tensors((x, pieces)), i32(count)], (number,))
    arguments = [*tensors((x, pieces, *results)), i32(count), i32(number)]
    launch(to, kernel("bytes", "codes", to.facts, EACH=each), arguments, (number,))


@op("DynamicQuantizeLinear")
class DynamicQuantise:
    """Codes over the range of all of x, 0 included."""

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        return None if dtypes[0] == "f32" else f"dtype {dtypes[0]}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [("u8", x.shape), ("f32", ()), ("u8", ())]

    def emit(self, node: Node, to: Emitting) -> None:
        names = [name or to.scratch(dtype, (1,)) for name, dtype in zip(node.outputs, ("u8", "f32", "u8"), strict=True)]
        quantise(to, node.inputs[0], names)


def _rows(node: Node, shape: tuple[int, ...], scale: tuple[int, ...]) -> tuple[int, int, int]:
    """(outer, channels, inner): one scale for all, or one for each index of an axis."""
    if math.prod(scale) == 1:
        rows = math.prod(shape[:-1])
        return rows, 1, shape[-1] if shape else 1
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


class _Linear:
    """What both directions have in common."""

    entry = ""

    def lower(self, node: Node, lowering: Lowering) -> None:
        pass

    def _emit(self, node: Node, to: Emitting, dtype: str) -> None:
        x, scale = to.value(node.inputs[0]), to.value(node.inputs[1])
        zero = len(node.inputs) > 2 and bool(node.inputs[2])
        kind, least, most = _TYPES[dtype]
        made = kernel(
            "bytes", self.entry, to.facts, TYPE=kind, HAS_ZERO=int(zero), LOWEST=f"({least}.f)", HIGHEST=f"({most}.f)"
        )
        size = _rows(node, x.shape, scale.shape)
        names = (*node.inputs[:2], node.inputs[2] if zero else node.inputs[0], node.outputs[0])
        if math.prod(x.shape):
            launch(to, made, [*tensors(names), *(i32(one) for one in size)], (size[0] * size[1],))


@op("DequantizeLinear")
class Dequantise(_Linear):
    """(x - zero)·scale, with one scale or one for each index of an axis."""

    entry = "from_codes"

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if node.attrs.get("block_size"):
            return "block_size"
        return None if dtypes[0] in _TYPES and dtypes[1] == "f32" else f"dtypes {dtypes}"

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        return [("f32", x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        self._emit(node, to, to.value(node.inputs[0]).dtype)


@op("QuantizeLinear")
class Quantise(_Linear):
    """round(x / scale) + zero, to the dtype of the zero point."""

    entry = "to_codes"

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        zero = dtypes[2] if len(dtypes) > 2 and dtypes[2] else "u8"
        if node.attrs.get("block_size") or node.attrs.get("output_dtype") or zero not in ("u8", "i8"):
            return "block_size, output_dtype, or no bytes"
        return None if dtypes[0] == "f32" == dtypes[1] else f"dtypes {dtypes}"

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        x = need(inputs)
        zero = inputs[2] if len(inputs) > 2 else None
        return [("u8" if zero is None else zero.dtype, x.shape)]

    def emit(self, node: Node, to: Emitting) -> None:
        self._emit(node, to, to.value(node.outputs[0]).dtype)
