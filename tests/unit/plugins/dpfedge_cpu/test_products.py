# SPDX-License-Identifier: Apache-2.0
"""Products with blocks become one operator of our own: what a graph computes stays, whatever is added behind them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from dpfedge_cpu.kernels import DOMAIN, register
from dpfedge_cpu.products import own_products
from dpfedge_cpu.session import runtime, session_options
from onnx import numpy_helper

from dpfedge.backend.api import Array, Budget
from dpfedge.compiler.blocks import Blocks
from dpfedge.compiler.decoder.linear import QUIET, Linear, Weight
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.compiler.reference import Reference
from dpfedge.tensors import TensorSpec

RNG = np.random.default_rng(2)
QUIET_COLUMNS = (3, 40, 64)


def blocks(rows: int, *, offsets: bool = True, bits: int = 4, zeros: bool = False) -> Blocks:
    """A matrix of 96 columns."""
    return Blocks(
        bits, RNG.integers(0, 256, (rows, 3, 4 * bits), np.uint8), RNG.normal(0, 0.1, (rows, 3)).astype(np.float32),
        RNG.normal(0, 0.1, (rows, 3)).astype(np.float32) if offsets else None,
        RNG.integers(0, 256, (rows, 2 if bits == 4 else 3), np.uint8) if zeros else None,
    )  # fmt: skip


def model_of(nodes: Nodes, *results: str) -> onnx.ModelProto:
    return nodes.model([TensorSpec("x", "f32", ("n", 96))], [TensorSpec(name, "f32", ("n", "m")) for name in results])


def ran(model: onnx.ModelProto, x: Array) -> list[Array]:
    options = session_options(Budget())
    register(options)
    session = runtime().InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def ops(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def check(model: onnx.ModelProto, products: int, left: dict[str, int]) -> None:
    """As many products are ours, only these operators are left beside them, and results are those of floats."""
    x = RNG.normal(0, 1, (5, 96)).astype(np.float32)
    wanted = Reference("g", model).run({"x": x})
    assert own_products(model) == products
    assert ops(model) == Counter({"BlockProduct": products} | left) - Counter()
    assert [one.version for one in model.opset_import if one.domain == DOMAIN] == [1] * bool(products)
    for found, expected in zip(ran(model, x), wanted.values(), strict=True):
        assert np.linalg.norm(found - expected) <= 5e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("offsets", [True, False])
def test_own_products__what_the_importers_write(bits: int, zeros: bool, offsets: bool) -> None:
    """Offsets are a sum and a second product, which the operator has in itself."""
    nodes = Nodes("g")
    weight = Weight(blocks(20, offsets=offsets, bits=bits, zeros=zeros), RNG.normal(0, 1, 20).astype(np.float32))
    Linear(nodes, 4).product("y", "x", weight)
    check(model_of(nodes, "y"), 1, {})


def normed(nodes: Nodes, *, quiet: tuple[int, ...]) -> str:
    gamma = RNG.normal(1, 0.1, 96).astype(np.float32)
    gamma[list(quiet)] /= np.float32(QUIET)
    return nodes.add("SimplifiedLayerNormalization", ["x", nodes.constant("gamma", gamma)], "h", axis=-1, epsilon=1e-5)


def test_own_products__loud_channels_are_whole_again() -> None:
    """Their norm divides them for a coarser rounding; where all its readers are ours it need not."""
    nodes = Nodes("g")
    hidden, linear = normed(nodes, quiet=QUIET_COLUMNS), Linear(nodes, 4)
    for name in ("a", "b"):
        linear.product(name, hidden, Weight(blocks(20)), QUIET_COLUMNS)
    linear.product("c", hidden, Weight(blocks(8, offsets=False, bits=8)), QUIET_COLUMNS)
    check(model_of(nodes, "a", "b", "c"), 3, {"SimplifiedLayerNormalization": 1})


def test_own_products__loud_channels_with_another_reader_stay() -> None:
    """Somebody else reads the divided ones."""
    nodes = Nodes("g")
    hidden = normed(nodes, quiet=QUIET_COLUMNS)
    Linear(nodes, 4).product("a", hidden, Weight(blocks(20)), QUIET_COLUMNS)
    nodes.add("Neg", [hidden], "b")
    model = model_of(nodes, "a", "b")
    before = ops(model)
    assert own_products(model) == 0
    assert ops(model) == before


def test_own_products__products_of_floats_stay() -> None:
    """Any level but 4 asks for more."""
    nodes = Nodes("g")
    Linear(nodes, 0).product("y", "x", Weight(blocks(20, offsets=False)))
    check(model_of(nodes, "y"), 0, {"MatMulNBits": 1})


def test_own_products__a_small_block_stays() -> None:
    """Blocks of 16 are none of ours where their codes have 4 bits."""
    nodes = Nodes("g")
    matrix = Blocks(
        4, RNG.integers(0, 256, (8, 6, 8), np.uint8), RNG.normal(0, 0.1, (8, 6)).astype(np.float32), None, None, 16
    )
    Linear(nodes, 4).product("y", "x", Weight(matrix))
    model = model_of(nodes, "y")
    assert own_products(model) == 0
    assert ops(model) == {"MatMulNBits": 1}


def test_own_products__a_small_block_of_8_bits() -> None:
    """As a file's Q6_K becomes, beside products of another form that read the same loud channels."""
    nodes = Nodes("g")
    matrix = Blocks(
        8, RNG.integers(0, 256, (8, 6, 16), np.uint8), RNG.normal(0, 0.1, (8, 6)).astype(np.float32), None, None, 16
    )
    hidden, linear = normed(nodes, quiet=QUIET_COLUMNS), Linear(nodes, 4)
    linear.product("a", hidden, Weight(matrix), QUIET_COLUMNS)
    linear.product("b", hidden, Weight(blocks(20)), QUIET_COLUMNS)
    check(model_of(nodes, "a", "b"), 2, {"SimplifiedLayerNormalization": 1})


@pytest.mark.parametrize("change", ["offsets", "alpha", "shared"])
def test_own_products__what_is_added_stays_where_it_is_something_else(change: str) -> None:
    """Sums with other numbers than ones, a factor, a result that is read elsewhere: the product alone is ours."""
    nodes = Nodes("g")
    Linear(nodes, 4).product("y", "x", Weight(blocks(20)))
    model = model_of(nodes, "y", *["y.product"] * (change == "shared"))
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    if change == "alpha":
        gemm.attribute.append(onnx.helper.make_attribute("alpha", 2.0))
    if change == "offsets":  # a sum over other axes
        axes = next(one for one in model.graph.initializer if one.name == "axis2")
        axes.CopyFrom(numpy_helper.from_array(np.array([1], np.int64), "axis2"))
        offsets = next(one for one in model.graph.initializer if one.name == "y.offsets")
        offsets.CopyFrom(numpy_helper.from_array(RNG.normal(0, 1, (32, 20)).astype(np.float32), "y.offsets"))
    check(model, 1, {"Reshape": 1, "ReduceSum": 1, "Gemm": 1})


def test_own_products__what_another_graph_computes_is_left() -> None:
    """A matrix that is no constant."""
    nodes = Nodes("g")
    codes = nodes.add("Cast", [nodes.constant("w", RNG.integers(0, 256, (8, 3, 16), np.int32))], "codes", to=2)
    scales = nodes.constant("scales", RNG.normal(0, 1, (8, 3)).astype(np.float32))
    nodes.add("MatMulNBits", ["x", codes, scales], "y", domain=MICROSOFT, K=96, N=8, bits=4, block_size=32,
              accuracy_level=4)  # fmt: skip
    model = model_of(nodes, "y")
    assert own_products(model) == 0
