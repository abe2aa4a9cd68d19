# SPDX-License-Identifier: Apache-2.0
"""ONNX graphs with their constants in another format: the answers stay near, and the sizes shrink."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from made_graphs import loaded, lowered, relative
from made_products import graph

from dpfedge.compiler.formats import Form
from dpfedge.compiler.graph_formats import in_form
from dpfedge.compiler.nodes import Nodes
from dpfedge.tensors import TensorSpec

RANDOM = np.random.default_rng(9)
FP8 = Form("fp8", "FLOAT8E4M3FN")


def run(model: onnx.ModelProto, **options: Any) -> np.ndarray[Any, Any]:
    """The answer to fixed inputs."""
    x = np.random.default_rng(1).standard_normal((5, 96)).astype(np.float32)
    return loaded(model, **options).run({"x": x})["y"]


def kinds(model: onnx.ModelProto) -> list[str]:
    """Operators in order."""
    return [node.op_type for node in model.graph.node]


FORMS = [(Form("int8"), 0.02), (Form("int4"), 0.15), (Form("int4-asymmetric"), 0.15), (Form("fp16", "FLOAT16"), 1e-3),
         (FP8, 0.06), (Form("fp8", "FLOAT8E4M3FNUZ"), 0.06)]  # fmt: skip


@pytest.mark.parametrize(("form", "most"), FORMS, ids=lambda item: getattr(item, "name", ""))
def test_in_form__answers(form: Form, most: float) -> None:
    """The changed graph is valid, smaller and answers within its format's error; the original is left alone."""
    model = graph()
    before = model.SerializeToString()
    changed, decisions = in_form(model, form)
    onnx.checker.check_model(changed)

    assert 1e-6 < relative(run(changed), run(model)) < most
    assert len(changed.SerializeToString()) < 0.6 * len(before)
    assert model.SerializeToString() == before
    assert len(decisions) == 1
    assert in_form(model, form)[0].SerializeToString() == changed.SerializeToString()


def test_in_form__keep() -> None:
    """Nothing is copied."""
    model = graph()

    assert in_form(model, Form("keep")) == (model, ())


def test_in_form__int8_is_unsigned(caplog: pytest.LogCaptureFixture) -> None:
    """Matrices are u8 about 128; lowering fuses each product and makes them signed only where that cannot saturate."""
    changed, _ = in_form(graph(), Form("int8"))
    plain, vnni = lowered(changed), lowered(changed, features=frozenset({"vnni"}))

    assert kinds(changed).count("MatMulInteger") == 2
    assert [array.dtype for array in plain.weights.values() if array.ndim == 2] == [np.uint8] * 2
    assert [array.dtype for array in vnni.weights.values() if array.ndim == 2] == [np.int8] * 2
    assert not changed.metadata_props
    assert not caplog.records
    assert changed.producer_name == "dpfedge"


def test_in_form__int4_of_gemm() -> None:
    """A Gemm's bias is added behind its blocks; one with factors, and a matrix without blocks, stay as they are."""
    changed, _ = in_form(graph(), Form("int4"))
    assert kinds(changed) == ["MatMulNBits", "Relu", "MatMulNBits", "Add"]
    assert {tensor.name for tensor in changed.graph.initializer} == {
        "first.int4.codes", "first.int4.scales", "second.int4t.codes", "second.int4t.scales", "bias",
    }  # fmt: skip

    scaled, decisions = in_form(graph(alpha=0.5), Form("int4"))
    assert kinds(scaled) == ["MatMulNBits", "Relu", "Gemm"]
    assert "1 of 2 have no whole blocks" in decisions[0][1]
    assert kinds(in_form(graph(inner=50), Form("int4"))[0]) == ["MatMulNBits", "Relu", "Gemm"]


def test_in_form__shared_matrix() -> None:
    """A matrix that two products use is stored once; one that something else reads, too, keeps its float form."""
    model = graph()
    twin = onnx.NodeProto()
    twin.CopyFrom(model.graph.node[0])
    twin.output[0], twin.name = "again", "again"
    model.graph.node.append(twin)
    model.graph.node.append(onnx.helper.make_node("ReduceSum", ["second"], ["total"], keepdims=0))
    changed, _ = in_form(model, Form("int4"))
    names = [tensor.name for tensor in changed.graph.initializer]

    assert names.count("first.int4.codes") == 1
    assert "second" in names
    assert "first" not in names


def test_in_form__nothing_to_change() -> None:
    """Small constants, and constants a caller may overrule, are left alone, and a decision says so."""
    nodes = Nodes("small")
    nodes.constant("w", np.ones((4, 4), np.float32))
    nodes.add("MatMul", ["x", "w"], "y")
    model = nodes.model([TensorSpec("x", "f32", ("n", 4))], [TensorSpec("y", "f32", ("n", 4))])
    open_ = graph()
    open_.graph.input.append(onnx.helper.make_tensor_value_info("first", onnx.TensorProto.FLOAT, [96, 64]))
    open_.graph.input.append(onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, [32, 64]))

    for untouched in (model, open_):
        found, decisions = in_form(untouched, Form("int8"))
        assert found is untouched
        assert decisions[0][0] == "weights=keep, not int8"


def test_in_form__convolutions() -> None:
    """Convolutions are stored in 8-bit floats, and never multiplied in 8-bit integers."""
    nodes = Nodes("conv")
    nodes.constant("w", RANDOM.standard_normal((16, 16, 5)).astype(np.float32))
    nodes.add("Conv", ["x", "w"], "y")
    model = nodes.model([TensorSpec("x", "f32", (1, 16, "n"))], [TensorSpec("y", "f32", (1, 16, "m"))])

    assert in_form(model, Form("int8"))[0] is model
    assert kinds(in_form(model, FP8)[0]) == ["DequantizeLinear", "Conv"]


def test_in_form__zero_matrix() -> None:
    """A matrix of zeros has a scale."""
    model = graph()
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.zeros((96, 64), np.float32), "first"))

    assert np.isfinite(run(in_form(model, FP8)[0])).all()
