# SPDX-License-Identifier: Apache-2.0
"""The reference run: the graph as its file has it, in float32, with outputs in place where asked."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.compiler.reference import Reference, reference_bytes
from dpfedge.errors import ModelError
from dpfedge.tensors import TensorSpec

X = TensorSpec("x", "f32", (1, "n"))


def doubled() -> Nodes:
    """y = 2x."""
    nodes = Nodes("g")
    nodes.add("Mul", ["x", nodes.constant("two", np.array(2, np.float32))], "y")
    return nodes


def test_reference__ports_and_answers() -> None:
    """Ports are read from the session; outputs are copies."""
    reference = Reference("m.g", doubled().model([X], [TensorSpec("y", "f32", (1, "n"))]))

    assert reference.inputs == (X,)
    np.testing.assert_array_equal(reference.run({"x": np.ones((1, 3), np.float32)})["y"], np.full((1, 3), 2.0))


def test_reference__in_place() -> None:
    """An output may be written over the array of an input."""
    reference = Reference("m.g", doubled().model([X], [TensorSpec("y", "f32", (1, "n"))]))
    array = np.ones((1, 3), np.float32)

    assert np.shares_memory(reference.run({"x": array}, {"y": "x"})["y"], array)
    assert array[0, 0] == 2


def test_reference__refuses_what_cannot_run() -> None:
    """onnxruntime's words with the graph's name, for a bad graph, bad inputs and ports without numbers."""
    model = doubled().model([X], [TensorSpec("y", "f32", (1, "n"))])
    with pytest.raises(ModelError, match=r"graph m\.g: reference run: .*rank for input"):
        Reference("m.g", model).run({"x": np.ones(3, np.float32)})
    model.graph.node[0].op_type = "Unheard"
    with pytest.raises(ModelError, match="Unheard"):
        Reference("m.g", model)
    texts = helper.make_tensor_value_info("t", TensorProto.STRING, [1])
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["u"])], "g", [texts],
                              [helper.make_tensor_value_info("u", TensorProto.STRING, [1])])  # fmt: skip
    with pytest.raises(ModelError, match=r"t: a port holds no numbers; found tensor\(string\)"):
        Reference("m.g", helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))


def test_reference_bytes__computes_in_float32() -> None:
    """`accuracy_level` is taken out of the bytes; the model keeps it."""
    nodes = Nodes("g")
    codes, scales = np.zeros((2, 1, 16), np.uint8), np.ones((2, 1), np.float32)
    inputs = ["x", nodes.constant("codes", codes), nodes.constant("scales", scales)]
    nodes.add("MatMulNBits", inputs, "y", domain=MICROSOFT, K=32, N=2, bits=4, block_size=32, accuracy_level=4)
    model = nodes.model([TensorSpec("x", "f32", (1, 32))], [TensorSpec("y", "f32", (1, 2))])

    def level(made: onnx.ModelProto) -> int:
        return int(next(a.i for a in made.graph.node[0].attribute if a.name == "accuracy_level"))

    assert (level(onnx.ModelProto.FromString(reference_bytes(model))), level(model)) == (0, 4)
    assert not Reference("m.g", model).draws
    x = {"x": np.random.default_rng(1).standard_normal((1, 32)).astype(np.float32)}
    exact, asked = (Reference("m.g", model, asked=asked).run(x)["y"] for asked in (False, True))
    assert 0 < np.abs(asked - exact).max() < 0.05 * np.abs(exact).max()


def test_reference__knows_graphs_that_draw() -> None:
    """Random numbers are looked for by operator."""
    nodes = Nodes("g")
    nodes.add("RandomNormalLike", ["x"], "y")

    assert Reference("m.g", nodes.model([X], [TensorSpec("y", "f32", (1, "n"))])).draws
