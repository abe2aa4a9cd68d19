# SPDX-License-Identifier: Apache-2.0
"""The graph builder."""

from __future__ import annotations

import numpy as np
import onnx

from dpfedge.compiler.nodes import IR_VERSION, OPSET, Nodes
from dpfedge.tensors import TensorSpec


def test_nodes__checked_model() -> None:
    """Nodes, constants and ports form a model onnx accepts, with the versions dpfedge compiles for."""
    nodes = Nodes("g")
    parts = nodes.add("Split", ["x"], "split", outputs=["a", "b"], axis=0, num_outputs=2)
    nodes.add("Add", [parts, nodes.constant("one", np.ones(1, np.float32))], "y")
    model = nodes.model([TensorSpec("x", "f32", (4,))], [TensorSpec("y", "f32", ("n",))])

    onnx.checker.check_model(model)
    assert (model.ir_version, model.opset_import[0].version) == (IR_VERSION, OPSET)
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_constant__first_value_stays() -> None:
    """A name given twice is one constant."""
    nodes = Nodes("g")
    assert nodes.constant("c", np.array([1])) == nodes.constant("c", np.array([2])) == "c"
    nodes.add("Identity", ["c"], "y")

    assert len(nodes.model([], [TensorSpec("y", "i64", (1,))]).graph.initializer) == 1
