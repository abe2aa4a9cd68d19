# SPDX-License-Identifier: Apache-2.0
"""Ports, weights and their places of an ONNX graph."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dpfedge.backend.onnx_graph import graph_ports, place_weights, read_model, take_weights
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.models import affine, matrix


def test_read_model__of_other_bytes() -> None:
    """A file cut short, or another one, is refused by the graph's name."""
    with pytest.raises(BackendError, match="graph g: it is no ONNX graph; found "):
        read_model(b"\x07nothing", "graph g")


def test_graph_ports__with_names_and_sizes() -> None:
    """Constants are no inputs; a dimension of no name gets one."""
    model = affine("n")
    model.graph.output[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    inputs, outputs = graph_ports(model, "graph g")

    assert [(spec.name, spec.dtype, spec.dims) for spec in inputs] == [("x", "f32", ("n", 64))]
    assert [spec.dims for spec in outputs] == [("?0", 64), ("n", 64)]


def test_graph_ports__of_text() -> None:
    """Links carry numbers; the port is named."""
    port = helper.make_tensor_value_info("x", TensorProto.STRING, [1])
    model = helper.make_model(helper.make_graph([], "text", [port], []))

    with pytest.raises(Unsupported, match=r"graph g: port x.*found STRING"):
        graph_ports(model, "graph g")


def test_take_weights__then_place_weights() -> None:
    """Large constants leave with their values; the graph says where they went."""
    model = affine(2)
    weights = take_weights(model)
    code = place_weights(model.SerializeToString(), {"w": ("weights.a", 128, 16384)})
    (kept,) = (tensor for tensor in onnx.ModelProto.FromString(code).graph.initializer if tensor.name == "w")

    assert list(weights) == ["w"]
    np.testing.assert_array_equal(weights["w"], matrix(1))
    assert not kept.raw_data
    assert {item.key: item.value for item in kept.external_data} == {
        "location": "weights.a", "offset": "128", "length": "16384",
    }  # fmt: skip


def test_take_weights__from_a_size_on() -> None:
    """The caller says what is small."""
    assert list(take_weights(affine(2), least=1)) == ["w", "one"]


def test_place_weights__without_a_place() -> None:
    """The weight is named."""
    model = affine(1)
    take_weights(model)

    with pytest.raises(BackendError, match="graph affine: weight has no place; found w"):
        place_weights(model.SerializeToString(), {})
