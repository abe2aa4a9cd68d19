# SPDX-License-Identifier: Apache-2.0
"""Branches: names of their own, weights where they can be mapped, and a graph that still means the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from dpfedge_cpu.branches import drop_unused, graphs, hoist, rewrite, separate
from made_graphs import loaded
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.cpu_facts import cpu_facts

RANDOM = np.random.default_rng(6)
node = helper.make_node


def weight(name: str, *dims: int) -> onnx.TensorProto:
    """Random values."""
    return numpy_helper.from_array((RANDOM.standard_normal(dims) / 4).astype(np.float32), name)


def value(name: str) -> onnx.ValueInfoProto:
    """A port of any shape."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def branch(name: str, nodes: list[onnx.NodeProto], output: str, *constants: onnx.TensorProto) -> onnx.GraphProto:
    """A graph inside."""
    return helper.make_graph(nodes, name, [], [value(output)], list(constants))


def inside(holder: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """One branch of a node."""
    return next(attribute.g for attribute in holder.attribute if attribute.name == name)


def model(nodes: list[onnx.NodeProto], *constants: onnx.TensorProto) -> onnx.ModelProto:
    """x f32[2,4] and c bool → y."""
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
             helper.make_tensor_value_info("c", TensorProto.BOOL, [])]  # fmt: skip
    graph = helper.make_graph(nodes, "main", ports, [value("y")], list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def answers(made: onnx.ModelProto) -> list[np.ndarray]:
    """Both ways."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    return [session.run(None, {"x": x, "c": np.array(choice)})[0] for choice in (True, False)]


def test_hoist__moves_weights_of_one_name() -> None:
    """Each branch's own weight gets a name of its own outside, also where a deeper branch reads it."""
    deep = node("If", ["c"], ["d"], then_branch=branch("deep", [node("Add", ["m", "w"], ["e"])], "e"),
                else_branch=branch("flat", [node("Identity", ["m"], ["f"])], "f"))  # fmt: skip
    then = branch("then", [node("MatMul", ["x", "w"], ["m"]), deep], "d", weight("w", 4, 4))
    inside(then.node[1], "then_branch").node[0].input[1] = "v"
    then.initializer.append(weight("v", 2, 4))
    other = branch("other", [node("MatMul", ["x", "w"], ["m"])], "m", weight("w", 4, 4))
    made = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)])
    wanted = answers(made)
    hoist(made, lambda tensor: True)

    assert {tensor.name for tensor in made.graph.initializer} == {"then/w", "then/v", "other/w"}
    assert all(not graph.initializer for graph in list(graphs(made.graph))[1:])
    for found, right in zip(answers(made), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_hoist__what_is_not_wanted_or_an_output_stays() -> None:
    """A small constant and one that is the branch's answer stay inside."""
    then = branch("then", [node("Mul", ["x", "k"], ["z"])], "a", weight("a", 2, 4), weight("k", 1))
    other = branch("other", [node("Identity", ["x"], ["b"])], "b")
    made = model([node("If", ["c"], ["y"], then_branch=then, else_branch=other)])
    hoist(made, lambda tensor: tensor.name != "k")

    assert not made.graph.initializer


def test_separate__a_name_means_the_outer_value_until_it_is_made() -> None:
    """A branch that makes a value called as one outside gets another name for it, from there on."""
    then = branch("then", [node("Neg", ["t"], ["u"]), node("Abs", ["u"], ["t"]), node("Sqrt", ["t"], ["z"])], "z")
    other = branch("other", [node("Neg", ["t"], ["b"])], "b")
    made = model([node("Neg", ["x"], ["t"]), node("If", ["c"], ["y"], then_branch=then, else_branch=other)])
    separate(made)
    inner = inside(made.graph.node[1], "then_branch").node

    assert [list(item.input) for item in inner] == [["t"], ["u"], ["then/t"]]
    assert inner[1].output[0] == "then/t"
    assert [array.shape for array in answers(made)] == [(2, 4), (2, 4)]


@pytest.mark.skipif(cpu_facts(Path("/")).level not in ("x86-64-v3", "x86-64-v4"), reason="no blocked kernels")
def test_lower__blocked_convolutions_in_branches() -> None:
    """Convolutions outside and inside of branches: the lowered graph loads and gives the same."""
    nodes = [node("Reshape", ["x", "s"], ["i"]), node("Conv", ["i", "w0"], ["a"]), node("Conv", ["a", "w1"], ["b"])]
    both = [
        branch(f"b{index}", [node("Conv", ["b", "own"], ["p"]), node("Relu", ["p"], ["q"])], "q",
               weight("own", 32, 32, 1, 1))
        for index in range(2)
    ]  # fmt: skip
    nodes.append(node("If", ["c"], ["y"], then_branch=both[0], else_branch=both[1]))
    shape = numpy_helper.from_array(np.array([1, 2, 2, 2]), "s")
    made = model(nodes, weight("w0", 32, 2, 1, 1), weight("w1", 32, 32, 1, 1), shape)
    run = loaded(made, arch=cpu_facts(Path("/")).level)

    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for choice, wanted in zip((True, False), answers(made), strict=True):
        np.testing.assert_allclose(run.run({"x": x, "c": np.array(choice)})["y"], wanted, rtol=1e-4, atol=1e-5)


def test_drop_unused__keeps_what_branches_read() -> None:
    """A node and constants that nobody reads go; what a branch reads stays."""
    then = branch("then", [node("MatMul", ["t", "inner"], ["u"])], "u")
    other = branch("other", [node("Neg", ["t"], ["v"])], "v")
    nodes = [node("Neg", ["x"], ["t"]), node("MatMul", ["t", "gone"], ["lost"]),
             node("If", ["c"], ["y"], then_branch=then, else_branch=other)]  # fmt: skip
    made = model(nodes, weight("inner", 4, 4), weight("gone", 4, 4))
    before = answers(made)
    drop_unused(made.graph)

    assert [one.op_type for one in made.graph.node] == ["Neg", "If"]
    assert [one.name for one in made.graph.initializer] == ["inner"]
    for found, wanted in zip(answers(made), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_drop_unused__an_input_keeps_its_default() -> None:
    """Without, the graph would ask for it."""
    made = helper.make_model(
        helper.make_graph([node("Neg", ["x"], ["y"])], "g", [value("x"), value("d")], [value("y")],
                          [weight("d", 2), weight("n", 2)])
    )  # fmt: skip
    drop_unused(made.graph)
    assert [tensor.name for tensor in made.graph.initializer] == ["d"]


def test_rewrite__nodes_and_the_constants_they_need() -> None:
    """What is replaced is counted, what nobody reads any more is gone; without a match nothing is touched."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    two, three = (numpy_helper.from_array(np.float32([n]), f"n{n}") for n in (2, 3))
    graph = helper.make_graph([helper.make_node("Mul", ["x", "n2"], ["y"])], "g", [x], [y], [two])
    before, made = graph.SerializeToString(), {"n3": three}

    assert rewrite(graph, lambda node: (), made) == 0
    assert graph.SerializeToString() == before
    assert rewrite(graph, lambda node: [helper.make_node("Add", ["x", "n3"], ["y"])], made) == 1
    assert [node.op_type for node in graph.node] == ["Add"]
    assert [one.name for one in graph.initializer] == ["n3"]
