# SPDX-License-Identifier: Apache-2.0
"""Operators MIGraphX takes."""

from __future__ import annotations

import onnx
from dpfedge_rocm.ops import OPERATORS, lacking
from onnx import TensorProto, helper


def graph(*ops: str, inner: onnx.GraphProto | None = None) -> onnx.ModelProto:
    """A model with one node of each operator; the last one holds `inner` as a branch."""
    nodes = [helper.make_node(op, ["x"], [f"y{index}"]) for index, op in enumerate(ops)]
    if inner is not None:
        nodes[-1].attribute.append(helper.make_attribute("body", inner))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    return helper.make_model(helper.make_graph(nodes, "g", [value], []))


def test_lacking__counts_what_the_provider_leaves() -> None:
    """In branches, too, where it would leave them to the CPU."""
    inner = graph("Relu", "STFT").graph

    assert lacking(graph("Conv", "Relu")) == {}
    assert lacking(graph("Det", "Relu", "Det", "Loop", inner=inner)) == {"Det": 2, "STFT": 1}


def test_operators__of_language_models() -> None:
    """Those of the demo's decoder are among them."""
    assert {"GroupQueryAttention", "MatMulNBits", "SimplifiedLayerNormalization", "RotaryEmbedding"} <= OPERATORS
    assert all(name == name.strip() and name for name in OPERATORS)
