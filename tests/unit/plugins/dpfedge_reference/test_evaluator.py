# SPDX-License-Identifier: Apache-2.0
"""The evaluator: errors mapped, constants viewed in place and nowhere else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_reference.evaluator import evaluate, mapped_errors, prepare
from onnx import helper, numpy_helper

from dpfedge.errors import BackendError
from dpfedge.testing.models import affine, right_affine, rows


def outside(location: str, offset: int) -> onnx.ModelProto:
    """`affine` with its matrix elsewhere."""
    model = affine(2)
    (tensor,) = (one for one in model.graph.initializer if one.name == "w")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(64 * 64 * 4))):
        tensor.external_data.add(key=key, value=value)
    return model


def test_prepare__views_sections() -> None:
    """At the offset the graph names."""
    matrix = np.frombuffer(affine(2).graph.initializer[0].raw_data, np.float32)
    memory = memoryview(bytes(64) + matrix.tobytes()).toreadonly()

    found = prepare(outside("weights.a", 64), {"weights.a": memory}).run(None, {"x": rows(2)})

    np.testing.assert_allclose(found[0], right_affine(rows(2))["y"], rtol=1e-5)


@pytest.mark.parametrize(("location", "offset"), [("weights.a", 128), ("/etc/passwd", 0), ("../w.bin", 0)])
def test_prepare__reads_no_file(location: str, offset: int) -> None:
    """What lies outside the sections is refused with its place."""
    with pytest.raises(BackendError, match=f"constant w lies outside the package: {location}"), mapped_errors("g"):
        prepare(outside(location, offset), {"weights.a": memoryview(bytes(64 * 64 * 4 + 64))})


def test_evaluate__maps_errors() -> None:
    """The graph is named, and the reason is the operator's."""
    with pytest.raises(BackendError, match="graph affine: "):
        evaluate(affine(2), {"x": rows(2, 63)})


def test_prepare__outputs_that_nobody_wants() -> None:
    """Their values are not taken for an input that is left out."""
    nodes = [
        helper.make_node("Split", ["x"], ["", "a"], axis=0, num_outputs=2),
        helper.make_node("Clip", ["a", "", "most"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [size]) for name, size in (("x", 4), ("y", 2))]
    most = numpy_helper.from_array(np.array(1, np.float32), "most")
    model = helper.make_model(helper.make_graph(nodes, "g", ports[:1], ports[1:], [most]))
    model.opset_import[0].version = 20

    (found,) = evaluate(model, {"x": np.array([7, 7, -5, 5], np.float32)})

    assert found.tolist() == [-5, 1]
