# SPDX-License-Identifier: Apache-2.0
"""Products with weights: a matrix in whatever form in, the fewest nodes that compute x·matrixᵀ (+ bias) out.

What a block's zero point leaves out, (8d + m)·Σx for Q4_1, is added by one small Gemm: float zero points would do it
in MatMulNBits itself, but have no fast kernel. Hidden states are [n, width] so that Gemm can add in place.

Columns may be `quiet`: x comes with them divided by QUIET, so that they take no part in the rounding of their block,
and the same Gemm adds the rest of them in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpfedge.compiler.blocks import BLOCK, Blocks, Floats
from dpfedge.compiler.nodes import MICROSOFT, Nodes

__all__ = ["QUIET", "Linear", "Weight"]

QUIET = 64.0
"""A power of two, so that dividing by it rounds nothing."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A matrix and its bias."""

    matrix: Blocks | Floats
    bias: Floats | None = None

    @property
    def form(self) -> object:
        """Weights of equal form become one product."""
        matrix = self.matrix
        return (matrix.form if isinstance(matrix, Blocks) else "float"), self.bias is None


class Linear:
    """Adds products to a graph; `accuracy` is MatMulNBits' level."""

    def __init__(self, nodes: Nodes, accuracy: int) -> None:
        self.nodes, self.accuracy = nodes, accuracy
        self._sums_of: dict[tuple[str, int], str] = {}

    def fused(self, name: str, x: str, weights: Sequence[Weight], quiet: Sequence[int] = ()) -> list[str]:
        """The products of `x` with each of `weights`, neighbours of one form together: one name per product node."""
        groups: list[list[Weight]] = []
        for weight in weights:
            if groups and groups[-1][0].form == weight.form:
                groups[-1].append(weight)
            else:
                groups.append([weight])
        if len(groups) == 1:
            return [self.product(name, x, _stack(groups[0]), quiet)]
        return [self.product(f"{name}.{index}", x, _stack(group), quiet) for index, group in enumerate(groups)]

    def product(self, name: str, x: str, weight: Weight, quiet: Sequence[int] = ()) -> str:
        """x·matrixᵀ + bias; `quiet` are columns that `x` has divided by QUIET."""
        nodes, matrix, bias = self.nodes, weight.matrix, weight.bias
        extra = [] if bias is None else [nodes.constant(f"{name}.bias", bias)]
        if not isinstance(matrix, Blocks):
            values = nodes.constant(f"{name}.values", _loudened(matrix, quiet))
            return nodes.add("Gemm", [x, values, *extra], name, transB=1)
        rows, columns = matrix.shape
        inputs = [x, nodes.constant(f"{name}.codes", matrix.codes), nodes.constant(f"{name}.scales", matrix.scales)]
        if matrix.zeros is not None:
            inputs.append(nodes.constant(f"{name}.zeros", matrix.zeros))
        if extra:
            inputs += [""] * (5 - len(inputs)) + extra
        whole = matrix.offsets is None and not quiet
        product = name if whole else f"{name}.product"
        nodes.add("MatMulNBits", inputs, product, domain=MICROSOFT, K=columns, N=rows, bits=matrix.bits,
                  block_size=matrix.block, accuracy_level=self.accuracy)  # fmt: skip
        if whole:
            return product
        parts = [] if matrix.offsets is None else [matrix.offsets.T]
        added = nodes.constant(f"{name}.offsets", np.concatenate([*parts, *_columns(matrix, quiet)]))
        return nodes.add("Gemm", [self._sums(name, x, matrix, quiet), added, product], name)

    def _sums(self, name: str, x: str, matrix: Blocks, quiet: Sequence[int]) -> str:
        """What the second product multiplies: Σ of x per block where the matrix has offsets, and quiet columns."""
        block = 0 if matrix.offsets is None else matrix.block
        if (x, block) not in self._sums_of:
            add = self._gathered if quiet else self._reduced
            self._sums_of[x, block] = add(name, x, matrix.shape[1], block, quiet)
        return self._sums_of[x, block]

    def _gathered(self, name: str, x: str, columns: int, block: int, quiet: Sequence[int]) -> str:
        """One product with a matrix of few ones is faster than a sum and a gather."""
        title = f"sums_{columns}_{block}_{'_'.join(map(str, quiet))}"
        chosen = np.zeros((columns, (columns // block if block else 0) + len(quiet)), np.float32)
        if block:
            chosen[np.arange(columns), np.arange(columns) // block] = 1
            chosen[list(quiet)] *= QUIET
        for place, column in enumerate(quiet):
            chosen[column, place - len(quiet)] = QUIET - 1
        return self.nodes.add("MatMul", [x, self.nodes.constant(title, chosen)], f"{name}.sums")

    def _reduced(self, name: str, x: str, columns: int, block: int, _: Sequence[int]) -> str:
        nodes, title = self.nodes, f"blocks_{columns}" if block == BLOCK else f"blocks_{columns}_{block}"
        shape = nodes.constant(title, np.array([-1, columns // block, block], np.int64))
        blocks = nodes.add("Reshape", [x, shape], f"{name}.blocks")
        axes = nodes.constant("axis2", np.array([2], np.int64))
        return nodes.add("ReduceSum", [blocks, axes], f"{name}.sums", keepdims=0)


def _loudened(matrix: Floats, quiet: Sequence[int]) -> Floats:
    if not quiet:
        return matrix
    matrix = matrix.copy()
    matrix[:, list(quiet)] *= np.float32(QUIET)
    return matrix


def _columns(matrix: Blocks, quiet: Sequence[int]) -> list[Floats]:
    """f32[1, rows] for each quiet column: what MatMulNBits multiplies it with, offsets left out."""
    return [matrix.column(column)[None] for column in quiet]


def _stack(weights: Sequence[Weight]) -> Weight:
    """One weight of all rows."""
    if len(weights) == 1:
        return weights[0]
    matrices = [weight.matrix for weight in weights]
    blocks = [matrix for matrix in matrices if isinstance(matrix, Blocks)]
    matrix = Blocks.stack(blocks) if blocks else np.concatenate([m for m in matrices if not isinstance(m, Blocks)])
    biases = [weight.bias for weight in weights if weight.bias is not None]
    return Weight(matrix, np.concatenate(biases) if biases else None)
