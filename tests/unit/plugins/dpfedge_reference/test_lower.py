# SPDX-License-Identifier: Apache-2.0
"""Lowering for the reference: nodes stay, constants leave, unknown operators are refused by name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_reference import ReferenceBackend
from onnx import TensorProto, helper

from dpfedge.backend.api import LowerRequest
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing.models import affine


def request(model: onnx.ModelProto) -> LowerRequest:
    """A request for any CPU."""
    return LowerRequest("net", model.SerializeToString(), "x86-64-v3", frozenset())


def test_lower__takes_constants_out() -> None:
    """Large ones, under their names; small ones stay."""
    lowered = ReferenceBackend().lower(request(affine("n")))

    assert list(lowered.weights) == ["w"]
    assert lowered.weights["w"].dtype == np.float32
    assert [spec.dims for spec in lowered.inputs] == [("n", 64)]
    assert len(lowered.code) < 1000


@pytest.mark.parametrize("domain", ["", "com.nobody"])
def test_lower__unknown_operator(domain: str) -> None:
    """Permanent, and the operator is named."""
    port = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph([helper.make_node("Frobnicate", ["x"], ["y"], domain=domain)], "odd", [port], [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    ])  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.nobody", 1)]

    with pytest.raises(Unsupported, match=r"graph net: an operator has no definition here.*Frobnicate"):
        ReferenceBackend().lower(request(helper.make_model(graph, opset_imports=opsets)))


def test_lower__no_graph() -> None:
    """Bytes that are no model."""
    with pytest.raises(BackendError, match="graph net"):
        ReferenceBackend().lower(LowerRequest("net", b"\x07x", "any", frozenset()))
