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
        assert np.linalg.norm(found - expected) <= 1e-4 * np.linalg.norm(expected)


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


def quiet_model(*more: str) -> tuple[onnx.ModelProto, onnx.NodeProto]:
    """A loud product `a` behind a norm `h`, and the node that adds its rest."""
    nodes = Nodes("g")
    Linear(nodes, 4).product("a", normed(nodes, quiet=QUIET_COLUMNS), Weight(blocks(20)), QUIET_COLUMNS)
    model = model_of(nodes, "a", *more)
    return model, next(node for node in model.graph.node if node.op_type == "Gemm")


def branching(name: str) -> onnx.NodeProto:
    """An If that reads `name` inside only, and gives it, as `b`, negated."""
    graphs = []
    for op in ("Neg", "Abs"):
        inner = onnx.helper.make_tensor_value_info(op, onnx.TensorProto.FLOAT, None)
        graphs.append(onnx.helper.make_graph([onnx.helper.make_node(op, [name], [op])], op, [], [inner]))
    return onnx.helper.make_node("If", ["yes"], ["b"], then_branch=graphs[0], else_branch=graphs[1])


@pytest.mark.parametrize("reader", ["sums", "result", "branch"])
def test_own_products__loud_channels_that_are_read_on_the_way_stay(reader: str) -> None:
    """Whoever else reads the norm, in a branch too, or the sums wants the divided channels."""
    model, gemm = quiet_model("b")
    if reader == "sums":
        model.graph.node.append(onnx.helper.make_node("Neg", [gemm.input[0]], ["b"]))
    elif reader == "result":
        model.graph.output[1].name = gemm.input[0]
    else:
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
        model.graph.node.append(branching("h"))
    before = ops(model)
    assert own_products(model) == 0
    assert ops(model) == before


def test_own_products__what_a_branch_reads_is_not_taken_away() -> None:
    """The product without what is added to it."""
    nodes = Nodes("g")
    Linear(nodes, 4).product("y", "x", Weight(blocks(20)))
    model = model_of(nodes, "y", "b")
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.node.append(branching(gemm.input[2]))
    check(model, 1, {"Reshape": 1, "ReduceSum": 1, "Gemm": 1, "If": 1})


def test_own_products__norms_that_share_gamma() -> None:
    """Each has its own loud channels."""
    nodes = Nodes("g")
    gamma = nodes.constant("gamma", RNG.normal(1, 0.1, 96).astype(np.float32))
    for name, x, columns in [("a", "x", (3, 40)), ("b", nodes.add("Neg", ["x"], "n"), (3, 7)), ("c", "x", ())]:
        hidden = nodes.add("SimplifiedLayerNormalization", [x, gamma], f"h{name}", axis=-1, epsilon=1e-5)
        Linear(nodes, 4).product(name, hidden, Weight(blocks(20)), columns)
    check(model_of(nodes, "a", "b", "c"), 3, {"SimplifiedLayerNormalization": 3, "Neg": 1})


@pytest.mark.parametrize("name", ["a/codes", "a/scales", "a/ends", "gamma/whole"])
@pytest.mark.parametrize("constant", [True, False])
def test_own_products__names_that_are_taken(name: str, constant: bool) -> None:
    """New constants are called otherwise."""
    model, _ = quiet_model("b")
    if constant:
        model.graph.initializer.append(numpy_helper.from_array(np.ones(96, np.float32), name))
        model.graph.node.append(onnx.helper.make_node("Add", ["x", name], ["b"]))
    else:
        model.graph.node.append(onnx.helper.make_node("Neg", ["x"], [name]))
        model.graph.node.append(onnx.helper.make_node("Add", ["x", name], ["b"]))
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    check(model, 1, {"SimplifiedLayerNormalization": 1, "Add": 1, "Neg": 1 - constant})


@pytest.mark.parametrize("shape", [[0, -1, 32], [0, 3, -1]])
def test_own_products__sums_of_a_shape_that_is_not_told(shape: list[int]) -> None:
    """What is added stays beside the product."""
    nodes = Nodes("g")
    Linear(nodes, 4).product("y", "x", Weight(blocks(20)))
    model = model_of(nodes, "y")
    name = next(node for node in model.graph.node if node.op_type == "Reshape").input[1]
    constant = next(one for one in model.graph.initializer if one.name == name)
    constant.CopyFrom(numpy_helper.from_array(np.array(shape, np.int64), name))
    check(model, 1, {"Reshape": 1, "ReduceSum": 1, "Gemm": 1})


@pytest.mark.parametrize("change", ["codes", "scales", "zeros", "bias", "input", "gamma"])
def test_own_products__constants_that_are_none_or_do_not_fit(change: str) -> None:
    """An input that only has a default, or an array of another size, is left to onnxruntime, which says so."""
    nodes, hidden = Nodes("g"), "x"
    if change == "gamma":
        hidden = normed(nodes, quiet=QUIET_COLUMNS)
    Linear(nodes, 4).product(
        "y", hidden, Weight(blocks(20, zeros=True, offsets=change == "gamma"), np.zeros(20, np.float32)),
        QUIET_COLUMNS if change == "gamma" else (),
    )  # fmt: skip
    model = model_of(nodes, "y")
    product = next(node for node in model.graph.node if node.op_type == "MatMulNBits")
    names = {"codes": product.input[1], "scales": product.input[2], "zeros": product.input[3], "bias": product.input[5],
             "input": product.input[1], "gamma": "gamma"}  # fmt: skip
    constant = next(one for one in model.graph.initializer if one.name == names[change])
    array = numpy_helper.to_array(constant)
    if change in ("input", "gamma"):
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(constant.name, constant.data_type, list(array.shape))
        )
    else:
        constant.CopyFrom(numpy_helper.from_array(array[:-1].copy(), constant.name))
    before = ops(model)
    assert own_products(model) == 0
    assert ops(model) == before
