# SPDX-License-Identifier: Apache-2.0
"""Lowering for MIGraphX."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_reference.evaluator import evaluate
from dpfedge_rocm.lower import lower
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import LowerRequest
from dpfedge.errors import Unsupported
from dpfedge.testing.cases import cases


def table() -> onnx.ModelProto:
    """A row of a quantised table."""
    ports = [helper.make_tensor_value_info("at", TensorProto.INT64, [1, 1]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 32])]  # fmt: skip
    weights = [numpy_helper.from_array(np.zeros((4, 32), np.uint8), "w"),
               numpy_helper.from_array(np.ones((4, 1), np.float32), "s")]  # fmt: skip
    node = helper.make_node("GatherBlockQuantized", ["w", "at", "s"], ["y"], domain="com.microsoft", bits=8,
                            block_size=32, gather_axis=0, quantize_axis=1)  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:], weights), opset_imports=opsets,
                             ir_version=10)  # fmt: skip


def test_lower__spells_tables_out() -> None:
    """And says so."""
    found = lower(LowerRequest("g", table().SerializeToString(), "gfx942", frozenset()))
    ops = {node.op_type for node in onnx.ModelProto.FromString(found.code).graph.node}

    assert "GatherBlockQuantized" not in ops
    assert found.decisions[1][0] == "tables=spelt out, 1×GatherBlockQuantized"


def test_lower__says_that_activations_stay_floats() -> None:
    """Golden tolerances follow."""
    (case,) = (one for one in cases() if one.name == "DynamicQuantizeMatMul/f32")
    code = case.model(evaluate(case.model(), case.feeds)).SerializeToString()

    assert lower(LowerRequest("g", code, "gfx942", frozenset())).arithmetic == "dequantised"
    assert lower(LowerRequest("g", table().SerializeToString(), "gfx942", frozenset())).arithmetic == "graph"


def test_lower__refuses_the_rest() -> None:
    """By name."""
    model = table()
    model.graph.node[0].input.append("z")
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 1), np.uint8), "z"))

    with pytest.raises(Unsupported, match="found 1×GatherBlockQuantized"):
        lower(LowerRequest("g", model.SerializeToString(), "gfx942", frozenset()))
