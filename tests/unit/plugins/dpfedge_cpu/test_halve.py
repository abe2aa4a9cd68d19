# SPDX-License-Identifier: Apache-2.0
"""Weights kept in 16 bits are multiplied in 16 bits."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_cpu.halve import halve
from dpfedge_reference.evaluator import evaluate
from onnx import TensorProto, helper, numpy_helper

from dpfedge.compiler.formats import Form
from dpfedge.compiler.graph_formats import in_form
from dpfedge.testing.cases import cases


def stored(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray]:
    """One of the suite's cases as a package for a GPU stores it, its feeds, and its answer."""
    (case,) = (one for one in cases() if one.name == name)
    (wanted,) = evaluate(case.model(), case.feeds)
    model = case.model([wanted])
    weights = [tensor for tensor in model.graph.initializer if tensor.name in ("w", "a")]
    for tensor in weights:  # what a package keeps as it is: less than 1024 elements
        assert tensor.data_type == TensorProto.FLOAT
    return model, case.feeds, wanted


@pytest.mark.parametrize("name", ["MatMul/f32", "Gemm/f32", "Conv/f32", "Conv-1d/f32", "ConvTranspose/f32"])
def test_halve__as_a_package_stores_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cast behind the weight is gone, one stands before each other input; what comes out is right to 16 bits."""
    monkeypatch.setattr("dpfedge.compiler.graph_formats._MIN_ELEMENTS", 1)
    source, feeds, wanted = stored(name)
    model, _ = in_form(source, Form("fp16", "FLOAT16"))
    assert halve(model) == 1

    onnx.checker.check_model(model)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds[-1] == "Cast"
    assert kinds.count(name.partition("/")[0].partition("-")[0]) == 1
    read = {name for node in model.graph.node for name in node.input}
    assert all(tensor.name in read for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT16)
    (found,) = evaluate(model, feeds)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 1e-2 * np.abs(wanted).max()


def test_halve__leaves_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights in 32 bits, and casts of other values."""
    model, _, _ = stored("MatMul/f32")
    before = model.SerializeToString()
    assert halve(model) == 0
    assert model.SerializeToString() == before


def test_halve__leaves_what_a_branch_reads() -> None:
    """A widened constant that only a graph inside a node reads keeps its cast."""
    weight = numpy_helper.from_array(np.ones((4, 4), np.float16), "w")
    cast = helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT)
    made = [helper.make_graph([helper.make_node(op, ["wide"], [f"{op}.y"])], op, [],
                              [helper.make_tensor_value_info(f"{op}.y", TensorProto.FLOAT, [4, 4])])
            for op in ("Neg", "Abs")]  # fmt: skip
    choose = helper.make_node("If", ["c"], ["y"], then_branch=made[0], else_branch=made[1])
    ports = [helper.make_tensor_value_info("c", TensorProto.BOOL, []),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])]  # fmt: skip
    model = helper.make_model(helper.make_graph([cast, choose], "g", ports[:1], ports[1:], [weight]), ir_version=10,
                              opset_imports=[helper.make_opsetid("", 20)])  # fmt: skip

    assert halve(model) == 0
    (found,) = evaluate(model, {"c": np.array(True)})
    np.testing.assert_array_equal(found, -np.ones((4, 4), np.float32))
