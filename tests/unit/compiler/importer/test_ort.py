# SPDX-License-Identifier: Apache-2.0
"""The ORT-format importer: round trip and refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from dpfedge.compiler.importer.onnx import subgraphs
from dpfedge.compiler.importer.ort import import_ort
from dpfedge.errors import ModelError


def choice() -> onnx.ModelProto:
    """y = x + 1 if c else x − 1, as two subgraphs of an If."""

    def branch(op: str) -> onnx.GraphProto:
        one = helper.make_tensor("one", TensorProto.FLOAT, [1], [1.0])
        out = helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n"])
        return helper.make_graph([helper.make_node(op, ["x", "one"], ["out"])], op, [], [out], [one])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch("Sub"))
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def ort_file(folder: Path) -> Path:
    """The graph in ORT format, written by onnxruntime."""
    path, options = folder / "model.ort", onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(choice().SerializeToString(), options, providers=["CPUExecutionProvider"])
    return path


def test_import_ort__same_graph(tmp_path: Path) -> None:
    """The converted graph runs and gives the same; its subgraphs have names."""
    made = import_ort(ort_file(tmp_path))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.arange(3, dtype=np.float32)

    np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": x})[0], x + 1)
    np.testing.assert_array_equal(session.run(None, {"c": np.array(False), "x": x})[0], x - 1)
    assert all(graph.name for graph in subgraphs(made.graph))


def test_import_ort__other_format(tmp_path: Path) -> None:
    """A file without the identifier is refused before onnxruntime sees it."""
    path = tmp_path / "model.ort"
    for data in (b"", b"abc", choice().SerializeToString()):
        path.write_bytes(data)
        with pytest.raises(ModelError, match="not an ORT-format file"):
            import_ort(path)


def test_import_ort__cut(tmp_path: Path) -> None:
    """A cut file is a ModelError."""
    path = ort_file(tmp_path)
    path.write_bytes(path.read_bytes()[:200])

    with pytest.raises(ModelError, match=r"model\.ort"):
        import_ort(path)
