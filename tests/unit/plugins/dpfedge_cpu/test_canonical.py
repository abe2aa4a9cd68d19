# SPDX-License-Identifier: Apache-2.0
"""Order and generated names depend on the graph alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from dpfedge_cpu.canonical import canonical
from made_graphs import lowered
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.cpu_facts import cpu_facts

FLOAT = TensorProto.FLOAT


def diamond(order: list[int], tokens: list[str]) -> onnx.ModelProto:
    """y = relu(x) + tanh(x)·w, with nodes in `order` and generated names `tokens`."""
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], [tokens[0]], name=tokens[0]),
        node("Tanh", ["x"], [tokens[1]], name=tokens[1]),
        node("Mul", [tokens[1], tokens[2]], ["named"], name="any"),
        node("Add", [tokens[0], "named"], ["y"], name="last"),
    ]
    constants = [numpy_helper.from_array(np.full(2, 3, np.float32), tokens[2])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [nodes[index] for index in order], "g", [value("x", FLOAT, [2])], [value("y", FLOAT, [2])], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_canonical__any_order_any_token() -> None:
    """Two orders and two sets of generated names give the same bytes, and the graph still runs."""
    one = diamond([0, 1, 2, 3], ["reorder_token_1", "reorder_token_2", "reorder"])
    other = diamond([1, 2, 0, 3], ["a_token_7", "reorder", "reorder_token_9"])
    canonical(one)
    canonical(other)
    x = np.array([1, -1], np.float32)
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])

    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x, 0) + np.tanh(x) * 3)


def test_canonical__keeps_real_names() -> None:
    """Names that were not generated stay, so that profiles can be read."""
    made = diamond([0, 1, 2, 3], ["first", "second", "weight"])
    canonical(made)

    assert [node.output[0] for node in made.graph.node] == ["first", "second", "named", "y"]
    assert made.graph.initializer[0].name == "weight"


def choice(tokens: list[str], first: int) -> onnx.ModelProto:
    """y = relu(x) or tanh(x)·w, where the branches make values under generated names and read one from outside."""
    node, value = helper.make_node, helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.full(2, 3, np.float32), tokens[0])
    branches = [
        helper.make_graph([node("Mul", [tokens[1], tokens[0]], [tokens[2]]), node("Neg", [tokens[2]], ["b"])],
                          "then", [], [value("b", FLOAT, [2])]),
        helper.make_graph([node("Exp", [tokens[1]], [tokens[2]])], "else", [], [value(tokens[2], FLOAT, [2])]),
    ]  # fmt: skip
    nodes = [node("Relu", ["x"], [tokens[1]], name=tokens[3]), node("ReduceSum", ["x"], ["s"], keepdims=0)]
    nodes = [nodes[first], nodes[1 - first], node("Cast", ["s"], ["c"], to=TensorProto.BOOL)]
    nodes.append(node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1], name=tokens[4]))
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, [2])], [value("y", FLOAT, [2])], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_canonical__branches_too() -> None:
    """Order and generated names inside of branches, and what they read from outside, are settled as well."""
    one = choice(["reorder", "a_token_1", "a_token_2", "n_token_3", "n_token_4"], 0)
    other = choice(["z_token_9", "b_token_7", "reorder", "m", "k_token_1"], 1)
    x = np.array([1, -3], np.float32)
    wanted = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )
    canonical(one)
    canonical(other)

    assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], wanted[0])


@pytest.mark.skipif(not cpu_facts(Path("/")).level.startswith("x86-64-v"), reason="blocked layouts exist on x86 only")
def test_lower__blocked_graphs_repeat() -> None:
    """A graph with many blocked convolutions is lowered to the same bytes every time."""
    nodes, constants, last = [], [], "x"
    for index in range(6):
        constants.append(numpy_helper.from_array(np.ones((16, 16, 3), np.float32) * index, f"w{index}"))
        nodes += [
            helper.make_node("Conv", [last, f"w{index}"], [f"c{index}"], pads=[1, 1]),
            helper.make_node("LeakyRelu", [f"c{index}"], [f"l{index}"]),
            helper.make_node("Add", [f"l{index}", f"c{index}"], [f"s{index}"]),
        ]
        last = f"s{index}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", FLOAT, [1, 16, "n"])], [value(last, FLOAT, [1, 16, "n"])], constants
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    arch = cpu_facts(Path("/")).level

    assert len({lowered(made, arch=arch).code for _ in range(8)}) == 1
