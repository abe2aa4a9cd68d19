# SPDX-License-Identifier: Apache-2.0
"""ONNX in one dialect."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.lower_onnx import open_source
from made_nodes import model, node, port
from onnx import TensorProto, helper


def test_open_source__attributes_of_old_operator_sets_are_inputs() -> None:
    """Axes and limits."""
    nodes = [node("ReduceMean", "x", "m", axes=[1], keepdims=0), node("Unsqueeze", "m", "u", axes=[0])]
    made = model(nodes, [port("x", ["n", 4])], [port("u", None)], opset=11)
    source = open_source(made.SerializeToString(), "made")
    mean, unsqueeze = source.nodes
    assert source.constants[mean.inputs[1]].tolist() == [1]
    assert source.constants[unsqueeze.inputs[1]].tolist() == [0]
    assert mean.attrs == {"keepdims": 0}


def test_open_source__dtypes_are_those_onnxruntime_infers() -> None:
    """Of every value, also behind operators of com.microsoft."""
    nodes = [node("ms:Gelu", "x", "g"), node("Cast", "g", "i", to=TensorProto.INT32), node("Less", "g x", "l")]
    made = model(nodes, [port("x", ["n"])], [port("i", ["n"], "i4"), port("l", ["n"], "?")])
    source = open_source(made.SerializeToString(), "made")
    assert [source.dtypes[name] for name in ("x", "g", "i", "l")] == ["f32", "f32", "i32", "bool"]


def test_open_source__branches_say_what_they_read() -> None:
    """Values of the graph around them are inputs of the node."""
    branches = {
        f"{side}_branch": helper.make_graph(
            [helper.make_node("Add", ["x", "x"], ["r"]) if side == "then" else helper.make_node("Neg", ["x"], ["r"])],
            side, [], [helper.make_tensor_value_info("r", 1, ["n"])],
        )
        for side in ("then", "else")
    }  # fmt: skip
    made = model([node("If", "c", "y", **branches)], [port("c", [], "?"), port("x", ["n"])], [port("y", ["n"])])
    source = open_source(made.SerializeToString(), "made")
    assert source.nodes[0].inputs == ("c", "x")


def test_open_source__names_of_nodes_are_unique() -> None:
    """Plans and messages go by them."""
    first, second = node("Exp", "x", "a"), node("Log", "a", "y")
    first.name, second.name = "", "a"
    source = open_source(model([first, second], [port("x", [2])], [port("y", [2])]).SerializeToString(), "made")
    assert len({one.name for one in source.nodes}) == 2


def test_open_source__values_of_constants() -> None:
    """A tensor attribute becomes a number and its dtype."""
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], np.array([2.5], np.float32))
    made = model([node("ConstantOfShape", "s", "y", value=value)], [port("s", [2], "i8")], [port("y", None)])
    assert open_source(made.SerializeToString(), "made").nodes[0].attrs == {"value": 2.5, "dtype": "f32"}
