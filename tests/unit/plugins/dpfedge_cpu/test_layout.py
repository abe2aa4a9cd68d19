# SPDX-License-Identifier: Apache-2.0
"""Layouts: wide and blocked graphs give the same numbers, with fewer reorders; what cannot move stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from dpfedge_cpu.layout import BLOCKED_DOMAIN, stay_blocked, widen
from made_graphs import loaded, lowered
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.cpu_facts import cpu_facts

RANDOM = np.random.default_rng(8)
HERE = cpu_facts(Path("/")).level
blocked = pytest.mark.skipif(HERE not in ("x86-64-v3", "x86-64-v4"), reason="this CPU has no blocked kernels")


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Random values."""
    return numpy_helper.from_array((RANDOM.standard_normal(shape) * 0.1).astype(np.float32), name)


def model(
    nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], channels: int, *, rank: int = 3
) -> onnx.ModelProto:
    """Nodes from `x` to `y`."""
    dims = [1, channels, "n"] if rank == 3 else [1, channels, "h", "w"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def vocoder() -> onnx.ModelProto:
    """Like a HiFi-GAN stage: upsampling, then residual blocks with an activation before each convolution."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a"], kernel_shape=[7], pads=[3, 3]),
        node("LeakyRelu", ["a"], ["al"], alpha=0.1),
        node("ConvTranspose", ["al", "w1"], ["u"], kernel_shape=[4], strides=[2], pads=[1, 1]),
        node("LeakyRelu", ["u"], ["ul"], alpha=0.1),
        node("Conv", ["ul", "w2"], ["r1"], kernel_shape=[3], pads=[1, 1]),
        node("Add", ["r1", "u"], ["s1"]),
        node("LeakyRelu", ["s1"], ["sl"], alpha=0.1),
        node("Conv", ["sl", "w3"], ["r2"], kernel_shape=[3], dilations=[3], pads=[3, 3]),
        node("Add", ["r2", "s1"], ["s2"]),
        node("Div", ["s2", "three"], ["d"]),
        node("Conv", ["d", "w4"], ["o"], kernel_shape=[7], pads=[3, 3]),
        node("Tanh", ["o"], ["y"]),
    ]
    constants = [
        weight("w0", 64, 24, 7), weight("b0", 64), weight("w1", 64, 32, 4), weight("w2", 32, 32, 3),
        weight("w3", 32, 32, 3), weight("w4", 1, 32, 7), numpy_helper.from_array(np.array(3, np.float32), "three"),
    ]  # fmt: skip
    return model(nodes, constants, 24)


def plain(made: onnx.ModelProto, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What onnxruntime gives without any optimiser."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


def count(made: onnx.ModelProto, op: str) -> int:
    """How many nodes of one kind."""
    return sum(node.op_type == op for node in made.graph.node)


def test_widen__same_numbers() -> None:
    """A graph of 1-D convolutions becomes 2-D in one piece and gives the same."""
    made, x = vocoder(), RANDOM.standard_normal((1, 24, 19)).astype(np.float32)
    wanted = plain(made, x)

    assert widen(made) == 5
    assert (count(made, "Unsqueeze"), count(made, "Squeeze")) == (1, 1)
    np.testing.assert_allclose(plain(made, x), wanted, atol=1e-6)


def test_widen__shared_and_foreign_weights() -> None:
    """A weight two convolutions share is widened once; one that another operator reads stays as it is."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1]),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1]),
        node("Conv", ["b", "v"], ["c"], pads=[1, 1]),
        node("ReduceMean", ["v"], ["m"], keepdims=0),
        node("Mul", ["c", "m"], ["y"]),
    ]
    made = model(nodes, [weight("w", 16, 16, 3), weight("v", 16, 16, 3)], 16)
    x = RANDOM.standard_normal((1, 16, 9)).astype(np.float32)
    wanted = plain(made, x)

    assert widen(made) == 2
    np.testing.assert_allclose(plain(made, x), wanted, atol=1e-6)


def test_widen__leaves_others_alone() -> None:
    """2-D convolutions and graphs with branches are not touched."""
    made = model([helper.make_node("Conv", ["x", "w"], ["y"])], [weight("w", 16, 16, 3, 3)], 16, rank=4)
    before = made.SerializeToString()

    assert widen(made) == 0
    assert made.SerializeToString() == before


@blocked
def test_lower__vocoder_stays_blocked() -> None:
    """Lowered for this CPU, the blocks are entered and left once per stage, and the numbers are the same."""
    made, x = vocoder(), RANDOM.standard_normal((1, 24, 33)).astype(np.float32)
    graph = lowered(made, arch=HERE)
    found = onnx.ModelProto.FromString(graph.code)

    assert sum(node.domain == BLOCKED_DOMAIN and node.op_type == "Conv" for node in found.graph.node) == 4
    assert count(found, "ReorderInput") + count(found, "ReorderOutput") <= 4
    np.testing.assert_allclose(loaded(made, arch=HERE).run({"x": x})["y"], plain(made, x), atol=1e-6)


@blocked
@pytest.mark.parametrize("stride", [1, 2])
def test_stay_blocked__never_broadcasts(stride: int) -> None:
    """Two blocked tensors that may have different sizes are combined in the plain layout."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], kernel_shape=[3], pads=[1, 1]),
        node("Conv", ["x", "w1"], ["b"], kernel_shape=[9], strides=[stride]),
        node("LeakyRelu", ["a"], ["al"]),
        node("LeakyRelu", ["b"], ["bl"]),
        node("Mul", ["al", "bl"], ["y"]),
    ]
    made = model(nodes, [weight("w0", 32, 16, 3), weight("w1", 32, 16, 9)], 16)
    x = RANDOM.standard_normal((1, 16, 9)).astype(np.float32)

    np.testing.assert_allclose(loaded(made, arch=HERE).run({"x": x})["y"], plain(made, x), atol=1e-6)


@blocked
def test_stay_blocked__odd_channels() -> None:
    """Channels that leave part of a block empty go back to the plain layout."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], kernel_shape=[3], pads=[1, 1]),
        helper.make_node("Sigmoid", ["a"], ["s"]),
        helper.make_node("Conv", ["s", "w1"], ["y"], kernel_shape=[3], pads=[1, 1]),
    ]
    made = model(nodes, [weight("w0", 20, 16, 3), weight("w1", 16, 20, 3)], 16)
    x = RANDOM.standard_normal((1, 16, 12)).astype(np.float32)

    np.testing.assert_allclose(loaded(made, arch=HERE).run({"x": x})["y"], plain(made, x), atol=1e-6)


def test_stay_blocked__nothing_to_do() -> None:
    """A graph without blocked nodes keeps its nodes."""
    made = vocoder()
    names = [node.output[0] for node in made.graph.node]

    assert stay_blocked(made) == 0
    assert [node.output[0] for node in made.graph.node] == names


@blocked
def test_lower__branches_read_blocked_tensors() -> None:
    """What a branch reads by name stays there: the lowered graph loads and gives the same."""
    then, other = (
        helper.make_graph(
            [helper.make_node("Mul", ["r1", f"k{index}"], ["b"])], f"branch{index}", [],
            [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)], [weight(f"k{index}", 32, 1, 1)],
        )
        for index in range(2)
    )  # fmt: skip
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1] * 4), node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], pads=[1] * 4), node("Relu", ["c1"], ["r1"]),
        node("Add", ["r0", "r1"], ["s"]),
        node("ReduceSum", ["s"], ["t"], keepdims=0), node("Greater", ["t", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]  # fmt: skip
    zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
    made = model(nodes, [weight("w0", 32, 16, 3, 3), weight("w1", 32, 32, 3, 3), zero], 16, rank=4)
    x = RANDOM.standard_normal((1, 16, 9, 7)).astype(np.float32)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])

    for value in (x, -x):
        found = loaded(made, arch=HERE).run({"x": value})["y"]
        np.testing.assert_allclose(found, session.run(None, {"x": value})[0], rtol=1e-4, atol=1e-5)
