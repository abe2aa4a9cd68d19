# SPDX-License-Identifier: Apache-2.0
"""MatMul, FusedMatMul and Gemm: products of matrices of floats, batched, with bias and epilogue.

Constant matrices are packed into panels when the graph is lowered; others are read as they lie or packed at run time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import Unsupported
from dpfedge_opencl.ops.api import Emitting, Facts, Lowering, Node, Value, op
from dpfedge_opencl.ops.base import need
from dpfedge_opencl.ops.halves import arithmetic, only_floats, stored, widened, widened_weight, writing
from dpfedge_opencl.ops.source import (
    divided,
    epilogue_options,
    i32,
    i64,
    kernel,
    launch,
    own_and_extras,
    panel_of,
    registers,
    tensors,
    tuned,
    vector,
)

__all__ = ["Product", "matmul_shape", "packed", "product", "tiles"]


def packed(matrix: Array, width: int) -> Array:
    """[K, N] as [panel][K][width], columns past N being zero."""
    rows, columns = matrix.shape
    padded = np.pad(matrix.astype(np.float32, copy=False), ((0, 0), (0, -columns % width)))
    return np.ascontiguousarray(padded.reshape(rows, -1, width).transpose(1, 0, 2))


def matmul_shape(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape of A·B as NumPy's matmul has it."""
    batch = np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
    return (*batch, *(a[-2:-1] if len(a) > 1 else ()), *(b[-1:] if len(b) > 1 else ()))


@dataclass(frozen=True, slots=True)
class Product:
    """One batched product; strides are elements of f32, `batch` (count, A's stride, B's stride) from outside in."""

    m: int
    n: int
    k: int
    lda: int
    trans_a: bool = False
    panel: int = 0
    """Width of B's panels where it is packed; else element (k, n) of B lies at k·sk + n·sn."""
    sk: int = 0
    sn: int = 1
    batch: tuple[tuple[int, int, int], ...] = ()
    alpha: float = 1.0
    bias: str = ""
    bias_kind: int = 0
    """1: one per column, `bias_stride` apart from row to row; 2: one per row, `bias_stride` apart."""
    bias_stride: int = 0

    @property
    def levels(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """The batch as two levels."""
        merged: list[tuple[int, int, int]] = []
        for count, a, b in reversed(self.batch):
            if count == 1:
                continue
            if merged and (a, b) == (merged[-1][0] * merged[-1][1], merged[-1][0] * merged[-1][2]):
                last = merged[-1]
                merged[-1] = (last[0] * count, last[1], last[2])
            else:
                merged.append((count, a, b))
        if len(merged) > 2:
            raise Unsupported(
                "product over three broadcast batch dimensions", where="opencl", found=self.batch, allowed="two"
            )
        one = (1, 0, 0)
        inner, outer = [*merged, one, one][:2]
        return outer, inner


def tiles(facts: Facts, m: int, vectors: int, most: int = 12) -> tuple[tuple[int, ...], ...]:
    """(rows and vectors of an item's tile, rows and tiles of a work-group): the usual first, then others worth a try.

    `vectors` make a panel, and an item makes all of it where registers suffice: each is an accumulator for each row.
    Few sizes serve all shapes, as each is another program."""
    if not facts.cpu:
        rows = 1 if m == 1 else 4
        return tuple((rows, vectors, *group) for group in ((4, 16), (8, 8), (2, 32), (1, 64), (16, 4)))
    room = registers(facts)
    wide = next(count for count in range(vectors, 0, -1) if vectors % count == 0 and 5 * count < room)
    if m <= 4:
        wanted = [1 if m == 1 else 4]
    else:
        fit = [rows for rows in (12, 8, 4) if rows <= min(most, m) and (rows + 1) * wide < room] or [4]
        wanted = [*fit, *(rows for rows in (5, 6) if (rows + 1) * wide < room)]
    return tuple((rows, wide, 1, 1) for rows in wanted)


def product(to: Emitting, node: Node, what: Product, a: str, b: str, c: str, extras: Sequence[str] = ()) -> None:
    """Enqueue `c = epilogue(alpha·a·b + bias)`; `b` is brought into panels first where it cannot be read as it lies."""
    lanes = vector(to.facts, what.panel or 16)
    tile = what.panel or (2 * lanes)
    if not what.panel and (what.sn != 1 or what.n < tile):
        b, what = _panels(to, what, b, tile)
    (_, a0, b0), (inner, a1, b1) = what.levels
    count = math.prod(level[0] for level in what.levels)
    shape = (count, what.m, what.n, what.k)
    rows, vectors, *group = tuned(to.facts, node, "gemm", shape, tiles(to.facts, what.m, tile // lanes))
    made = kernel(
        "gemm", "gemm", to.facts, V=lanes, MR=rows, NR=vectors, TRANS_A=int(what.trans_a), PANEL=what.panel,
        BIAS=what.bias_kind,
        **arithmetic(to.facts, to.value(b)), **epilogue_options(node, "last", lanes),
    )  # fmt: skip
    numbers = (what.m, what.n, what.k, what.lda, what.sk, what.bias_stride, inner)
    args = [
        *tensors((a, b, what.bias or a, *extras, c)), *(i32(one) for one in numbers),
        *(i64(one) for one in (a0, a1, b0, b1)), np.float32(what.alpha),
    ]  # fmt: skip
    sizes = (divided(what.m, rows), divided(what.n, vectors * lanes), count)
    launch(to, made, args, sizes, (*group, 1), count * what.m * what.n * what.k)


def _panels(to: Emitting, what: Product, b: str, tile: int) -> tuple[str, Product]:
    (outer, _, b0), (inner, _, b1) = what.levels
    matrices = (outer if b0 else 1) * (inner if b1 else 1)
    panels, rows = divided(what.n, tile), 64
    made = kernel("pack", "to_panels", to.facts, WIDTH=tile, ROWS=rows)
    space = to.scratch("f32", (matrices, panels, what.k, tile))
    numbers = (what.n, what.k, what.sk, what.sn, inner if b1 else 1)
    args = [*tensors((b, space)), *(i32(one) for one in numbers), i64(b0), i64(b1)]
    launch(to, made, args, (panels, divided(what.k, rows), matrices))
    each = panels * what.k * tile
    one = (outer, what.levels[0][1], each * (inner if b1 else 1) if b0 else 0)
    two = (inner, what.levels[1][1], each if b1 else 0)
    return space, replace(what, panel=tile, batch=(one, two))


class _MatMul:
    """What the three have in common: A, B, and whether they are transposed."""

    epilogue = "last"

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        if node.attrs.get("transBatchA") or node.attrs.get("transBatchB"):
            return "transBatchA, transBatchB"
        return only_floats(dtypes)

    def lower(self, node: Node, lowering: Lowering) -> None:
        for index in range(len(node.inputs)):
            widened_weight(node, lowering, index)
        matrix = lowering.weight(node.inputs[1])
        if matrix is None or matrix.ndim != 2:
            return
        columns = matrix.T if node.attrs.get("transB") else matrix
        panel = panel_of(lowering.arch)
        name = lowering.add(node, "panels", stored(packed(columns, panel), lowering.features))
        node.inputs = (node.inputs[0], name, *node.inputs[2:])
        node.attrs.update(panel=panel, K=columns.shape[0], N=columns.shape[1], transB=0)

    def _shapes(self, node: Node, a: Value, b: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A's and B's shapes as they multiply."""
        left, right = a.shape, (node.attrs["K"], node.attrs["N"]) if "panel" in node.attrs else b.shape
        if node.attrs.get("transA") and len(left) > 1:
            left = (*left[:-2], left[-1], left[-2])
        if node.attrs.get("transB") and len(right) > 1:
            right = (*right[:-2], right[-1], right[-2])
        return left, right

    def shape(self, node: Node, inputs: Sequence[Value | None]) -> Sequence[tuple[str, tuple[int, ...]]]:
        a, b = need(inputs), need(inputs, 1)
        return [(a.dtype, matmul_shape(*self._shapes(node, a, b)))]

    def _product(self, node: Node, to: Emitting) -> Product:
        left, right = self._shapes(node, to.value(node.inputs[0]), to.value(node.inputs[1]))
        left = left if len(left) > 1 else (1, *left)
        right = right if len(right) > 1 else (*right, 1)
        m, k, n = left[-2], left[-1], right[-1]
        trans_a, trans_b = bool(node.attrs.get("transA")), bool(node.attrs.get("transB"))
        alpha, panel = float(node.attrs.get("alpha", 1.0)), int(node.attrs.get("panel", 0))
        lda, (sk, sn) = m if trans_a else k, (1, k) if trans_b else (n, 1)
        if len(right) == 2 and not trans_a:
            return Product(math.prod(left[:-1]), n, k, lda, False, panel, sk, sn, (), alpha)
        batch = _batch(left[:-2], right[:-2], m * k, k * n)
        return Product(m, n, k, lda, trans_a, panel, sk, sn, batch, alpha)

    def emit(self, node: Node, to: Emitting) -> None:
        self._run(node, to, self._product(node, to))

    def _run(self, node: Node, to: Emitting, what: Product) -> None:
        extras = own_and_extras(node)[1]
        if 0 in to.value(node.outputs[0]).shape:
            return
        with writing(to, node.outputs[0]) as output:
            a, *more = (widened(to, name) for name in (node.inputs[0], *extras))
            b = node.inputs[1] if what.panel else widened(to, node.inputs[1])
            product(to, node, what, a, b, output, more)


def _batch(a: tuple[int, ...], b: tuple[int, ...], a_size: int, b_size: int) -> tuple[tuple[int, int, int], ...]:
    """(count, A's stride, B's stride) of each broadcast batch dimension."""
    rank = max(len(a), len(b))
    left, right = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    found = []
    for x, y in zip(reversed(left), reversed(right), strict=True):
        found.append((max(x, y) if 0 not in (x, y) else 0, a_size if x > 1 else 0, b_size if y > 1 else 0))
        a_size, b_size = a_size * x, b_size * y
    return tuple(reversed(found))


@op("MatMul", "com.microsoft.FusedMatMul")
class MatMul(_MatMul):
    """A·B over the last two axes; `com.microsoft.FusedMatMul` with factors and transpositions."""


@op("Gemm")
class Gemm(_MatMul):
    """alpha·A·B + beta·C; C broadcasts from any shape."""

    def lower(self, node: Node, lowering: Lowering) -> None:
        super().lower(node, lowering)
        beta = float(node.attrs.get("beta", 1.0))
        if beta == 1.0 or len(node.inputs) < 3 or not node.inputs[2]:
            return
        bias = lowering.weight(node.inputs[2])
        assert bias is not None  # see `supports`
        scaled = lowering.add(node, "bias", bias.astype(np.float32) * np.float32(beta))
        node.inputs = (*node.inputs[:2], scaled, *node.inputs[3:])

    def supports(self, node: Node, dtypes: Sequence[str], lowering: Lowering) -> str | None:
        scaled = float(node.attrs.get("beta", 1.0)) != 1.0 and len(node.inputs) > 2 and node.inputs[2]
        if scaled and lowering.weight(node.inputs[2]) is None:
            return f"beta {node.attrs['beta']} for a computed C"
        return super().supports(node, dtypes, lowering)

    def emit(self, node: Node, to: Emitting) -> None:
        what, own = self._product(node, to), own_and_extras(node)[0]
        if len(own) > 2 and (bias := own[2]):
            shape = (1, 1, *to.value(bias).shape)[-2:]
            kind, stride = (1, shape[1]) if shape[1] == what.n else (2, 1)
            what = replace(what, bias=widened(to, bias), bias_kind=kind, bias_stride=stride if shape[0] > 1 else 0)
        self._run(node, to, what)
