# SPDX-License-Identifier: Apache-2.0
"""Products with weights: a matrix in whatever form in, the fewest nodes that compute x·matrixᵀ (+ bias) out.

What a block's zero point leaves out, (8d + m)·Σx for Q4_1, is added by one small Gemm: float zero points would do it
in MatMulNBits itself, but have no fast kernel. Hidden states are [n, width] so that Gemm can add in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpfedge.compiler.blocks import BLOCK, Blocks, Floats
from dpfedge.compiler.nodes import MICROSOFT, Nodes

__all__ = ["Linear", "Weight"]


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

    def fused(self, name: str, x: str, weights: Sequence[Weight]) -> list[str]:
        """The products of `x` with each of `weights`, neighbours of one form together: one name per product node."""
        groups: list[list[Weight]] = []
        for weight in weights:
            if groups and groups[-1][0].form == weight.form:
                groups[-1].append(weight)
            else:
                groups.append([weight])
        if len(groups) == 1:
            return [self.product(name, x, _stack(groups[0]))]
        return [self.product(f"{name}.{index}", x, _stack(group)) for index, group in enumerate(groups)]

    def product(self, name: str, x: str, weight: Weight) -> str:
        """x·matrixᵀ + bias."""
        nodes, matrix, bias = self.nodes, weight.matrix, weight.bias
        extra = [] if bias is None else [nodes.constant(f"{name}.bias", bias)]
        if not isinstance(matrix, Blocks):
            return nodes.add("Gemm", [x, nodes.constant(f"{name}.values", matrix), *extra], name, transB=1)
        rows, columns = matrix.shape
        inputs = [x, nodes.constant(f"{name}.codes", matrix.codes), nodes.constant(f"{name}.scales", matrix.scales)]
        if matrix.zeros is not None:
            inputs.append(nodes.constant(f"{name}.zeros", matrix.zeros))
        if extra:
            inputs += [""] * (5 - len(inputs)) + extra
        product = name if matrix.offsets is None else f"{name}.product"
        nodes.add("MatMulNBits", inputs, product, domain=MICROSOFT, K=columns, N=rows, bits=matrix.bits,
                  block_size=matrix.block, accuracy_level=self.accuracy)  # fmt: skip
        if matrix.offsets is None:
            return name
        offsets = nodes.constant(f"{name}.offsets", matrix.offsets.T)
        return nodes.add("Gemm", [self._sums(name, x, columns, matrix.block), offsets, product], name)

    def _sums(self, name: str, x: str, columns: int, block: int) -> str:
        """Σ of x per block: f32[n, columns/block]."""
        if (x, block) not in self._sums_of:
            nodes, title = self.nodes, f"blocks_{columns}" if block == BLOCK else f"blocks_{columns}_{block}"
            shape = nodes.constant(title, np.array([-1, columns // block, block], np.int64))
            blocks = nodes.add("Reshape", [x, shape], f"{name}.blocks")
            axes = nodes.constant("axis2", np.array([2], np.int64))
            self._sums_of[x, block] = nodes.add("ReduceSum", [blocks, axes], f"{name}.sums", keepdims=0)
        return self._sums_of[x, block]


def _stack(weights: Sequence[Weight]) -> Weight:
    """One weight of all rows."""
    if len(weights) == 1:
        return weights[0]
    matrices = [weight.matrix for weight in weights]
    blocks = [matrix for matrix in matrices if isinstance(matrix, Blocks)]
    matrix = Blocks.stack(blocks) if blocks else np.concatenate([m for m in matrices if not isinstance(m, Blocks)])
    biases = [weight.bias for weight in weights if weight.bias is not None]
    return Weight(matrix, np.concatenate(biases) if biases else None)
