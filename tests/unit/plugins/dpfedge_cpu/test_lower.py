# SPDX-License-Identifier: Apache-2.0
"""Lowering: the optimised graph means the same, weights lie outside, bytes repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.lower import lower_plain, sign_weights
from made_graphs import loaded, lowered
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import LowerRequest
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec
from dpfedge.testing.cases import cases

RANDOM = np.random.default_rng(5)


def network() -> onnx.ModelProto:
    """A chain the optimiser has something to do with: identity, constant arithmetic, MatMul + Add, Relu."""
    nodes = Nodes("network")
    nodes.add("Identity", ["x"], "same")
    scale = nodes.add(
        "Mul",
        [nodes.constant("a", np.full(32, 2, np.float32)), nodes.constant("b", np.full(32, 3, np.float32))],
        "scale",
    )
    hidden = nodes.add(
        "MatMul", ["same", nodes.constant("w", RANDOM.standard_normal((32, 32)).astype(np.float32))], "hidden"
    )
    biased = nodes.add("Add", [hidden, scale], "biased")
    nodes.add("Relu", [biased], "y")
    return nodes.model([TensorSpec("x", "f32", ("n", 32))], [TensorSpec("y", "f32", ("n", 32))])


def quantised(zero: np.ndarray) -> onnx.ModelProto:
    """DynamicQuantizeMatMul with u8 weights."""
    nodes = Nodes("quantised")
    codes = np.random.default_rng(2).integers(0, 256, (48, 40), np.uint8)
    inputs = [
        "x",
        nodes.constant("w", codes),
        nodes.constant("s", np.full(zero.shape, 0.01, np.float32)),
        nodes.constant("z", zero),
    ]
    nodes.add("DynamicQuantizeMatMul", inputs, "y", domain=MICROSOFT)
    return nodes.model([TensorSpec("x", "f32", ("n", 48))], [TensorSpec("y", "f32", ("n", 40))])


def test_lower__same_result_fewer_nodes() -> None:
    """The lowered graph gives what onnxruntime gives for the original without any optimiser."""
    model, x = network(), RANDOM.standard_normal((3, 32)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    graph = lowered(model)

    np.testing.assert_allclose(loaded(model).run({"x": x})["y"], plain.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)
    assert len(onnx.ModelProto.FromString(graph.code).graph.node) < len(model.graph.node)


def test_lower__weights_outside() -> None:
    """Large initialisers are taken out, small ones stay; ports keep names and dynamic dimensions."""
    graph = lowered(network())

    assert [array.shape for array in graph.weights.values()] == [(32, 32)]
    assert len(graph.code) < 2000
    assert graph.inputs == (TensorSpec("x", "f32", ("n", 32)),)


def test_lower__same_bytes() -> None:
    """Lowering twice gives the same bytes and says nothing of this run."""
    first, second = lowered(network()), lowered(network())

    assert first.code == second.code
    assert b"/tmp" not in first.code


def test_lower__decisions_name_the_rule() -> None:
    """Layout optimisations only for this machine's own architecture."""
    here = cpu_facts(Path("/")).level

    assert lowered(network(), arch=here).decisions[0][0] == "optimiser=ENABLE_ALL"
    assert lowered(network(), arch="armv8.0-a").decisions[0][0] == "optimiser=ENABLE_EXTENDED"


def test_lower__blocked_layout_is_a_decision() -> None:
    """A 2-D convolution lowered for this machine is marked, because its memory layout is this CPU's."""
    here = cpu_facts(Path("/")).level
    if not here.startswith("x86-64-v") or here < "x86-64-v3":
        pytest.skip("blocked layouts exist on x86 with AVX only")
    nodes = Nodes("image")
    nodes.add("Conv", ["x", nodes.constant("w", RANDOM.standard_normal((32, 16, 3, 3)).astype(np.float32))], "y")
    model = nodes.model([TensorSpec("x", "f32", (1, 16, 8, 8))], [TensorSpec("y", "f32", (1, 32, 6, 6))])

    assert any(choice == f"layout=nchwc,{here}" for choice, _ in lowered(model, arch=here).decisions)
    assert not any(choice.startswith("layout") for choice, _ in lowered(model, arch="armv8.0-a").decisions)


def test_finish__places() -> None:
    """Each weight gets location, offset and length; a weight without a place is an error."""
    backend, graph = CpuBackend(), lowered(network())
    name = next(iter(graph.weights))
    model = onnx.ModelProto.FromString(backend.finish(graph, {name: ("weights.x", 4096, 4096)}))
    tensor = next(item for item in model.graph.initializer if item.name == name)

    assert {entry.key: entry.value for entry in tensor.external_data} == {
        "location": "weights.x",
        "offset": "4096",
        "length": "4096",
    }
    with pytest.raises(BackendError, match="weight has no place"):
        backend.finish(graph, {})


@pytest.mark.parametrize("zero", [np.array(131, np.uint8), np.arange(100, 140, dtype=np.uint8)])
def test_sign_weights__same_numbers(zero: np.ndarray) -> None:
    """Signed codes with shifted zero points are the same integers."""
    model = quantised(zero)
    before = {tensor.name: numpy_helper.to_array(tensor).astype(np.int64) for tensor in model.graph.initializer}

    assert sign_weights(model) == 1
    after = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert after["w"].dtype == np.int8
    np.testing.assert_array_equal(after["w"].astype(np.int64) - after["z"], before["w"] - before["z"])


def test_sign_weights__same_result_with_vnni() -> None:
    """On a CPU with 8-bit dot products both forms give bitwise the same output."""
    if "vnni" not in cpu_facts(Path("/")).features:
        pytest.skip("this CPU has no 8-bit dot product")
    model, x = quantised(np.array(131, np.uint8)), RANDOM.standard_normal((5, 48)).astype(np.float32)
    plain, signed = (loaded(model, features=frozenset(f)).run({"x": x})["y"] for f in ((), ("vnni",)))

    np.testing.assert_array_equal(plain, signed)


def test_sign_weights__shared_matrix() -> None:
    """A matrix that is also read elsewhere keeps its unsigned form there."""
    model = quantised(np.array(131, np.uint8))
    model.graph.node.append(helper.make_node("Gather", ["w", "i"], ["row"], axis=0))
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]))
    sign_weights(model)
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}

    assert types["w"] == TensorProto.UINT8
    assert types["w.signed"] == TensorProto.INT8
    assert model.graph.node[0].input[1] == "w.signed"


def test_lower__broken_graph() -> None:
    """A graph onnxruntime refuses is a BackendError that names it."""
    nodes = Nodes("broken")
    nodes.add("NoSuchOperator", ["x"], "y")
    model = nodes.model([TensorSpec("x", "f32", (1,))], [TensorSpec("y", "f32", (1,))])

    with pytest.raises(BackendError, match="graph graph: "):
        lowered(model)


def levels(*asked: int) -> onnx.ModelProto:
    """Products with blocks in a row, each with its accuracy level."""
    nodes, x = Nodes("levels"), "x"
    codes = nodes.constant("codes", RANDOM.integers(0, 256, (32, 1, 16), np.uint8))
    scales = nodes.constant("scales", np.full((32, 1), 0.1, np.float32))
    for place, level in enumerate(asked):
        x = nodes.add("MatMulNBits", [x, codes, scales], f"y{place}", domain=MICROSOFT, K=32, N=32, bits=4,
                      block_size=32, accuracy_level=level)  # fmt: skip
    return nodes.model([TensorSpec("x", "f32", ("n", 32))], [TensorSpec(x, "f32", ("n", 32))])


def found_levels(model: onnx.ModelProto) -> list[int]:
    """Those of a model."""
    return [a.i for node in model.graph.node for a in node.attribute if a.name == "accuracy_level"]


def test_lower__products_with_blocks_are_our_own() -> None:
    """Those that may be rounded, and golden tolerances follow; their weights are used where they are mapped."""
    ours, mixed, coarse = lowered(levels(4, 4)), lowered(levels(4, 0)), lowered(levels(0, 0))
    assert [graph.arithmetic for graph in (ours, mixed, coarse)] == ["block16", "block16", "graph"]
    assert any(choice == "products=2×BlockProduct" for choice, _ in ours.decisions)
    assert found_levels(onnx.ModelProto.FromString(mixed.code)) == [0]
    assert not any("BlockProduct" in choice for choice, _ in coarse.decisions)
    wide = lowered(wide_product())
    assert wide.mapped >= wide.weights.keys()
    assert not lowered(network()).mapped & lowered(network()).weights.keys()
    x = RANDOM.standard_normal((3, 32)).astype(np.float32)
    model = levels(4, 4)
    [found] = loaded(model).run({"x": x}).values()
    for attribute in [one for node in model.graph.node for one in node.attribute if one.name == "accuracy_level"]:
        attribute.i = 0
    [wanted] = loaded(model).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_lower__does_not_know_what_this_process_loaded_before() -> None:
    """onnxruntime then lists the domain of our operators in whatever it optimises."""
    first = [lowered(model()).code for model in (network, wide_product)]
    x = RANDOM.standard_normal((3, 64)).astype(np.float32)
    loaded(wide_product()).run({"x": x})
    assert [lowered(model()).code for model in (network, wide_product)] == first
    for code, versions in zip(first, ([], [1]), strict=True):
        imports = onnx.ModelProto.FromString(code).opset_import
        assert [one.version for one in imports if one.domain == "dpfedge.cpu"] == versions


def test_lower__a_product_that_stays_coarse() -> None:
    """One of another form among ours: the graph's own tolerance holds."""
    model = levels(4, 4)
    small = model.graph.node[1]
    small.input[1], small.input[2] = "small", "each"
    next(one for one in small.attribute if one.name == "block_size").i = 16
    for name, array in (("small", np.zeros((32, 2, 8), np.uint8)), ("each", np.ones((32, 2), np.float32))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    assert lowered(model).arithmetic == "graph"


def wide_product() -> onnx.ModelProto:
    """One product whose codes and scales lie outside the graph."""
    nodes = Nodes("wide")
    codes = nodes.constant("codes", RANDOM.integers(0, 256, (1024, 2, 16), np.uint8))
    scales = nodes.constant("scales", RANDOM.standard_normal((1024, 2)).astype(np.float32))
    nodes.add("MatMulNBits", ["x", codes, scales], "y", domain=MICROSOFT, K=64, N=1024, bits=4, block_size=32,
              accuracy_level=4)  # fmt: skip
    return nodes.model([TensorSpec("x", "f32", ("n", 64))], [TensorSpec("y", "f32", ("n", 1024))])


def test_lower_plain__has_no_layout_of_a_cpu() -> None:
    """Constants are folded, blocked kernels and fusions are not there, and `change` has the last word."""
    nodes = Nodes("plain")
    two = nodes.add("Add", [nodes.constant("one", np.ones(1, np.float32)), "one"], "two")
    nodes.add("Conv", ["x", nodes.constant("w", np.ones((16, 16, 3, 3), np.float32))], "c")
    nodes.add("Mul", ["c", two], "y")
    model = nodes.model([TensorSpec("x", "f32", (1, 16, 8, 8))], [TensorSpec("y", "f32", (1, 16, 6, 6))])
    request = LowerRequest("plain", model.SerializeToString(), "sm_90", frozenset())

    def change(model: onnx.ModelProto) -> list[tuple[str, str]]:
        model.graph.node[0].name = "changed"
        return [("changed=1", "the test wants it")]

    graph = lower_plain(request, change)

    assert [node.op_type for node in onnx.ModelProto.FromString(graph.code).graph.node] == ["Conv", "Mul"]
    assert [choice for choice, _ in graph.decisions] == ["optimiser=ENABLE_BASIC", "changed=1"]
    assert graph.code == lower_plain(request, change).code


@pytest.mark.parametrize("name", ["MatMul/f16", "Softmax/f16", "Conv-1d/f16", "Add/f16"])
def test_lower_plain__sixteen_bits_stay(name: str) -> None:
    """The CPU would cast to 32 bits and back, and take operators apart that it lacks."""
    (case,) = (one for one in cases() if one.name == name)
    model = case.model([np.zeros(1, np.float16)])

    graph = lower_plain(LowerRequest("half", model.SerializeToString(), "sm_90", frozenset()))

    assert [node.op_type for node in onnx.ModelProto.FromString(graph.code).graph.node] == [case.op]
    assert graph.decisions[0][0] == "optimiser=none"
