# SPDX-License-Identifier: Apache-2.0
"""The graph builder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from dpfedge.compiler.nodes import IR_VERSION, OPSET, Nodes
from dpfedge.compiler.reference import Reference
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


def test_nodes__spill(tmp_path: Path) -> None:
    """Large constants go to a file, each on a page of its own; a reference run finds them there."""
    large, other = np.arange(2048, dtype=np.float32), np.full(1500, 2, np.float32)
    nodes = Nodes("g", tmp_path / "matrices")
    total = nodes.add("Add", ["x", nodes.constant("large", large)], "sum")
    part = nodes.add(
        "Slice", [total, *(nodes.constant(n, np.array([v])) for n, v in (("from", 0), ("to", 1500)))], "part"
    )
    nodes.add("Mul", [part, nodes.constant("other", other)], "y")
    model = nodes.model([TensorSpec("x", "f32", (2048,))], [TensorSpec("y", "f32", (1500,))])
    places = {t.name: {e.key: e.value for e in t.external_data} for t in model.graph.initializer}

    assert places["large"] == {"location": "matrices", "offset": "0", "length": "8192"}
    assert places["other"]["offset"] == "8192"
    assert not places["from"]
    assert len(model.SerializeToString()) < 2000
    found = Reference("g", model, tmp_path).run({"x": np.ones(2048, np.float32)})["y"]
    assert (found == 2 * (1 + large[:1500])).all()
