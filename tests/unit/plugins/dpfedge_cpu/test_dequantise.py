# SPDX-License-Identifier: Apache-2.0
"""Products over quantised activations made products of floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_cpu.dequantise import dequantise
from dpfedge_reference.evaluator import evaluate
from onnx import helper, numpy_helper

from dpfedge.testing.cases import IR_VERSION, OPSETS, cases

RANDOM = np.random.default_rng(3)


def model(nodes: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    """x f32[3, 16] → y f32[3, 24]."""
    ports = [helper.make_tensor_value_info(name, 1, list(dims)) for name, dims in (("x", (3, 16)), ("y", (3, 24)))]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "quantised", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid(*opset) for opset in OPSETS]
    return helper.make_model(graph, ir_version=IR_VERSION, opset_imports=opsets)


def chain(zero: bool, bias: bool) -> onnx.ModelProto:
    """As the recogniser's graphs have it: quantise, multiply, back to floats."""
    constants = {
        "w": RANDOM.integers(0, 128, (16, 24)).astype(np.uint8),
        "ws": RANDOM.uniform(0.01, 0.03, 24).astype(np.float32),
    }
    inputs = ["q", "w", "s", "ws", "z", "wz" if zero else "", "b" if bias else ""]
    if zero:
        constants["wz"] = np.array(64, np.uint8)
    if bias:
        constants["b"] = RANDOM.standard_normal(24).astype(np.float32)
    return model(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], name="quantise"),
            helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft", name="product"),
        ],
        **constants,
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_dequantise__drops_the_quantiser(zero: bool, bias: bool) -> None:
    """Weights become floats, activations are not rounded, and nothing unused stays."""
    source = chain(zero, bias)
    x = RANDOM.standard_normal((3, 16)).astype(np.float32)
    (wanted,) = evaluate(source, {"x": x})

    assert dequantise(source) == 1

    onnx.checker.check_model(source)
    assert [node.op_type for node in source.graph.node] == ["MatMul", *["Add"] * bias]
    assert {tensor.name for tensor in source.graph.initializer} == {"w.floats", *["b"] * bias}
    (found,) = evaluate(source, {"x": x})
    assert np.abs(found - wanted).max() <= 2e-2 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["DynamicQuantizeMatMul/f32", "MatMulIntegerToFloat/f32"])
def test_dequantise__the_suites_cases(name: str) -> None:
    """Also where the quantised activations are an input: they are made floats first."""
    (case,) = (one for one in cases() if one.name == name)
    (wanted,) = evaluate(case.model(), case.feeds)
    changed = case.model([wanted])

    assert dequantise(changed) == 1

    (found,) = evaluate(changed, case.feeds)
    assert np.abs(found - wanted).max() <= case.tolerance * np.abs(wanted).max()


def test_dequantise__leaves_what_it_cannot_read() -> None:
    """Weights that are fed stay as they are."""
    nodes = [helper.make_node("DynamicQuantizeMatMul", ["x", "w", "ws"], ["y"], domain="com.microsoft", name="p")]
    source = model(nodes, ws=np.array(0.1, np.float32))
    before = source.SerializeToString()
    assert dequantise(source) == 0
    assert source.SerializeToString() == before
