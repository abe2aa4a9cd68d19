# SPDX-License-Identifier: Apache-2.0
"""Products with blocks and floats, fused where they can be."""

from __future__ import annotations

import numpy as np
import pytest
from made_graphs import loaded, relative

from dpfedge.compiler.blocks import Blocks, Floats
from dpfedge.compiler.decoder.linear import QUIET, Linear, Weight
from dpfedge.compiler.nodes import Nodes
from dpfedge.compiler.reference import Reference
from dpfedge.tensors import TensorSpec

RANDOM = np.random.default_rng(4)
X = RANDOM.standard_normal((5, 64)).astype(np.float32)


def made(bits: int, block: int, rows: int, *, offsets: bool = False, zeros: bool = False) -> Blocks:
    """Random blocks for 64 columns."""
    count = 64 // block
    codes = RANDOM.integers(0, 256, (rows, count, block * bits // 8), np.uint8)
    scales = RANDOM.uniform(0.01, 0.02, (rows, count)).astype(np.float32)
    least = RANDOM.standard_normal((rows, count)).astype(np.float32) if offsets else None
    points = RANDOM.integers(0, 256, (rows, -(-count * bits // 8)), np.uint8) if zeros else None
    return Blocks(bits, codes, scales, least, points, block)


def run(weights: list[Weight]) -> tuple[list[str], Floats]:
    """(operators, the products side by side)."""
    nodes = Nodes("g")
    names = Linear(nodes, 0).fused("p", "x", weights)
    nodes.add("Concat", names, "y", axis=-1)
    rows = sum(len(weight.matrix.codes if isinstance(weight.matrix, Blocks) else weight.matrix) for weight in weights)
    model = nodes.model([TensorSpec("x", "f32", ("n", 64))], [TensorSpec("y", "f32", ("n", rows))])
    return [node.op_type for node in model.graph.node], loaded(model).run({"x": X})["y"]


def wanted(weights: list[Weight]) -> Floats:
    """The same in float64."""
    parts = []
    for weight in weights:
        matrix = weight.matrix.values() if isinstance(weight.matrix, Blocks) else weight.matrix
        parts.append(X.astype(np.float64) @ matrix.T + (0 if weight.bias is None else weight.bias))
    return np.concatenate(parts, -1)


def bias(rows: int) -> Floats:
    """A random bias."""
    return RANDOM.standard_normal(rows).astype(np.float32)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("matrix", [
    made(4, 32, 24), made(4, 32, 24, offsets=True), made(8, 16, 24), made(4, 16, 24, offsets=True),
    made(8, 32, 24, offsets=True), made(4, 32, 24, zeros=True), RANDOM.standard_normal((24, 64)).astype(np.float32),
])  # fmt: skip
def test_product__values(matrix: Blocks | Floats, with_bias: bool) -> None:
    """Every form gives x·matrixᵀ + bias."""
    weights = [Weight(matrix, bias(24) if with_bias else None)]

    assert relative(run(weights)[1], wanted(weights)) < 1e-5


def test_fused__one_form() -> None:
    """Neighbours of one form are one product, also where only one has offsets."""
    weights = [Weight(made(4, 32, 8), bias(8)), Weight(made(4, 32, 16, offsets=True), bias(16))]
    operators, found = run(weights)

    assert operators.count("MatMulNBits") == 1
    assert relative(found, wanted(weights)) < 1e-5


def test_fused__several_forms() -> None:
    """Other forms are products of their own; the sums of x are shared by those that need them."""
    weights = [Weight(made(4, 32, 8, offsets=True)), Weight(made(8, 32, 8, offsets=True)), Weight(made(8, 16, 8)),
               Weight(RANDOM.standard_normal((8, 64)).astype(np.float32))]  # fmt: skip
    operators, found = run(weights)

    assert (operators.count("MatMulNBits"), operators.count("ReduceSum")) == (3, 1)
    assert relative(found, wanted(weights)) < 1e-5


@pytest.mark.parametrize("quiet", [(), (3, 40, 63)])
@pytest.mark.parametrize("matrix", [
    made(4, 32, 24, offsets=True), made(8, 16, 24), made(4, 32, 24, zeros=True),
    made(4, 16, 24, offsets=True, zeros=True), RANDOM.standard_normal((24, 64)).astype(np.float32),
])  # fmt: skip
def test_product__apart(matrix: Blocks | Floats, quiet: tuple[int, ...]) -> None:
    """Quiet columns come divided and are added whole again."""
    nodes = Nodes("g")
    Linear(nodes, 0).product("y", "x", Weight(matrix), quiet)
    model = nodes.model([TensorSpec("x", "f32", ("n", 64))], [TensorSpec("y", "f32", ("n", 24))])
    divided = X.copy()
    divided[:, list(quiet)] /= np.float32(QUIET)

    assert relative(loaded(model).run({"x": divided})["y"], wanted([Weight(matrix)])) < 1e-5


def test_product__quiet_is_rounded_less() -> None:
    """A channel a hundred times as large as its neighbours no longer spoils their rounding."""
    x = X.copy()
    x[:, 7] *= 100
    weight = Weight(made(4, 32, 24, offsets=True))
    exact = x.astype(np.float64) @ np.asarray(weight.matrix.values()).T  # type: ignore[union-attr]
    errors = []
    for quiet in ((), (7,)):
        nodes, fed = Nodes("g"), x.copy()
        fed[:, list(quiet)] /= np.float32(QUIET)
        Linear(nodes, 4).product("y", "x", weight, quiet)
        model = nodes.model([TensorSpec("x", "f32", ("n", 64))], [TensorSpec("y", "f32", ("n", 24))])
        found = Reference("g", model, asked=True).run({"x": fed})["y"]  # 8 bits, whatever this CPU's target does
        errors.append(float(np.linalg.norm(found - exact)))

    assert errors[1] < errors[0] / 5
