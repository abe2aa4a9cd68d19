# SPDX-License-Identifier: Apache-2.0
"""Products of 8-bit matrices: MatMulInteger, MatMulIntegerToFloat, DynamicQuantizeMatMul; the second one's constant B.

Codes are packed as signed bytes, unsigned ones less 128; zero points move with them (bytes.cl).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.ops.api import Emitting, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.gemm import tiles
from dpfedge_opencl.ops.quantise import quantise
from dpfedge_opencl.ops.source import (
    divided,
    epilogue_options,
    i32,
    kernel,
    launch,
    own_and_extras,
    panel_of,
    signed_dot,
    tensors,
    tuned,
    vector,
)

__all__ = ["ByteProduct", "packed_bytes"]

# where A's scale and zero, B's scale and zero, and the bias stand among the inputs (-1: nowhere)
_PLACES = {
    "MatMulInteger": (-1, 2, -1, 3, -1),
    "com.microsoft.MatMulIntegerToFloat": (2, 4, 3, 5, 6),
    "com.microsoft.DynamicQuantizeMatMul": (-1, -1, 2, 3, 4),
}


def packed_bytes(matrix: Array, width: int) -> Array:
    """Signed [K, N] as [N / width][K / 4][width][4]."""
    rows, columns = matrix.shape
    padded = np.pad(matrix, ((0, -rows % 4), (0, -columns % width)))
    parts = padded.reshape(padded.shape[0] // 4, 4, -1, width)
    return np.ascontiguousarray(parts.transpose(2, 0, 3, 1))


def _signed(codes: Array) -> tuple[Array, int]:
    """Codes as i8, and what was taken away."""
    if codes.dtype == np.int8:
        return codes, 0
    return (codes.astype(np.int16) - 128).astype(np.int8), 128


def _input(names: Sequence[str], index: int) -> str:
    return names[index] if 0 <= index < len(names) else ""


@op(*_PLACES)
class ByteProduct:
    """(A - a_zero)·(B - b_zero), as ints or as floats by both scales."""

    epilogue = "last"

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        own, places = own_and_extras(node)[0], _PLACES[node.op]
        matrix = lowering.weight(own[1])
        if matrix is None or matrix.ndim != 2 or matrix.dtype not in (np.uint8, np.int8):
            return "B is no constant matrix of bytes"
        if any(lowering.weight(name) is None for at in places[2:4] if (name := _input(own, at))):
            return "B's scale or zero point is computed"
        zero = lowering.weight(_input(own, places[1])) if _input(own, places[1]) else None
        if zero is not None and zero.size > 1:
            return "a zero point for each row of A"
        return None if dtypes[0] in ("u8", "i8", "f32") else f"dtype {dtypes[0]}"

    def lower(self, node: Node, lowering: Lowering) -> None:
        own, extras = own_and_extras(node)
        a_scale, a_zero, b_scale, b_zero, bias = (_input(own, at) for at in _PLACES[node.op])
        matrix = lowering.weight(own[1])
        assert matrix is not None
        codes, moved = _signed(matrix)
        columns, panel = codes.shape[1], panel_of(lowering.arch)
        whole = divided(columns, panel) * panel

        def each(name: str, fill: float) -> Array:
            array = lowering.weight(name) if name else None
            values = np.full(columns, fill) if array is None else np.broadcast_to(array.reshape(-1), columns)
            return np.pad(values, (0, whole - columns))

        zeros = each(b_zero, 0).astype(np.int32) - moved
        zeros[columns:] = 0
        sums = np.pad(codes.astype(np.int32).sum(0, dtype=np.int32), (0, whole - columns))
        arrays = {
            "codes": packed_bytes(codes, panel), "scale": each(b_scale, 1).astype(np.float32), "zeros": zeros,
            "sums": (sums - codes.shape[0] * zeros).astype(np.int32),
        }  # fmt: skip
        made = {role: lowering.add(node, role, array) for role, array in arrays.items()}
        if not a_zero:
            a_zero = lowering.add(node, "a_zero", np.zeros(1, np.uint8))
        node.inputs = (
            own[0],
            made["codes"],
            a_scale,
            a_zero,
            made["scale"],
            made["zeros"],
            made["sums"],
            bias,
            *extras,
        )
        node.attrs.update(K=codes.shape[0], N=columns, panel=panel, zeros=int(bool(zeros.any())))

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        a = need(inputs)
        dtype = "i32" if node.op == "MatMulInteger" else "f32"
        return [(dtype, (*a.shape[:-1], node.attrs["N"]))]

    def emit(self, node: Node, to: Emitting) -> None:
        own, extras = own_and_extras(node)
        a, codes, a_scale, a_zero, scale, zeros, sums, bias = own
        value = to.value(a)
        m = math.prod(value.shape[:-1])
        if not m:
            return
        if value.dtype == "f32":
            a, a_scale, a_zero = to.scratch("u8", value.shape), to.scratch("f32", (1,)), to.scratch("u8", (1,))
            quantise(to, own[0], (a, a_scale, a_zero))
        self._product(node, to, m, (a, codes, a_scale or scale, a_zero, scale, zeros, sums, bias, *extras))

    def _product(self, node: Node, to: Emitting, m: int, names: Sequence[str]) -> None:
        attrs, lanes = node.attrs, vector(to.facts, node.attrs["panel"])
        choice = tiles(to.facts, m, attrs["panel"] // lanes)
        rows, vectors, *group = tuned(to.facts, node, "bytes", (m, attrs["N"], attrs["K"]), choice)
        made = kernel(
            "bytes", "bytes_gemm", to.facts, MR=rows, NR=vectors, PANEL=attrs["panel"], V=lanes, ZEROS_B=attrs["zeros"],
            SIGNED_DOT=signed_dot(to.facts), SIGNED_A=int(to.value(names[0]).dtype == "i8"),
            BIAS=int(bool(names[7])),
            FLOATS=int(node.op != "MatMulInteger"), **epilogue_options(node, "last", lanes),
        )  # fmt: skip
        arguments = tensors([name or names[0] for name in (*names, node.outputs[0])])
        numbers = [i32(one) for one in (m, attrs["N"], attrs["K"])]
        sizes = (divided(m, rows), divided(attrs["N"], vectors * lanes))
        launch(to, made, [*arguments, *numbers], sizes, group, m * attrs["N"] * attrs["K"])
