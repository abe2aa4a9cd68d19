# SPDX-License-Identifier: Apache-2.0
"""Cutting a voice: the two graphs together equal the whole, and the computed overlap is enough."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from dpfedge.compiler.piper import build_piper, hop_samples, overlap_frames
from dpfedge.errors import ModelError

RANDOM = np.random.default_rng(4)
CHANNELS = 6


def weight(name: str, *shape: int) -> onnx.TensorProto:
    """Random values."""
    return numpy_helper.from_array((RANDOM.standard_normal(shape) * 0.3).astype(np.float32), name)


def voice(*, decoder: str = "/dec/") -> onnx.ModelProto:
    """Ids → table look-up (the encoder) → a small convolutional decoder with strides 2 and 3."""
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input"], ["rows"], name="/enc/Gather", axis=0),
        node("Transpose", ["rows"], ["z"], name="/enc/Transpose", perm=[0, 2, 1]),
        node("Conv", ["z", "w1"], ["a"], name=f"{decoder}conv_pre/Conv", kernel_shape=[7], pads=[3, 3]),
        node("ConvTranspose", ["a", "w2"], ["b"], name=f"{decoder}ups.0", kernel_shape=[4], strides=[2], pads=[1, 1]),
        node("Conv", ["b", "w3"], ["c"], name=f"{decoder}res", kernel_shape=[3], dilations=[3], pads=[3, 3]),
        node("ConvTranspose", ["c", "w4"], ["d"], name=f"{decoder}ups.1", kernel_shape=[5], strides=[3], pads=[1, 1]),
        node("Tanh", ["d"], ["e"], name=f"{decoder}Tanh"),
        node("Unsqueeze", ["e", "axis"], ["output"], name="/Unsqueeze"),
    ]
    constants = [
        weight("table", 20, CHANNELS), weight("w1", 8, CHANNELS, 7), weight("w2", 8, 8, 4), weight("w3", 8, 8, 3),
        weight("w4", 8, 1, 5),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, ["batch_size", "phonemes"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, ["batch_size"]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 1, "t"])
    graph = helper.make_graph(nodes, "voice", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> np.ndarray:
    """The first output."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    return np.asarray(session.run(None, {key: value for key, value in feeds.items() if key in names})[0])


IDS = np.arange(40)[None] % 20


def test_build_piper__equals_whole() -> None:
    """encode then decode gives the samples of the uncut graph."""
    model = voice()
    graphs = build_piper(model)
    feeds = {"input": IDS, "input_lengths": np.array([40]), "scales": np.ones(3, np.float32)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    found = run(graphs["decode"], latent=run(graphs["encode"], **feeds))

    np.testing.assert_allclose(found.reshape(-1), session.run(None, feeds)[0].reshape(-1), atol=1e-6)


def test_overlap_frames__is_enough_and_not_much_more() -> None:
    """A window with the computed overlap is exact inside; the hop is the product of the strides."""
    graphs = build_piper(voice())
    decode, overlap = graphs["decode"], overlap_frames(graphs["decode"])
    hop = hop_samples(decode)
    latent = RANDOM.standard_normal((1, CHANNELS, 40)).astype(np.float32)
    whole = run(decode, latent=latent).reshape(-1)

    def error(context: int) -> float:
        part = run(decode, latent=latent[:, :, 15 - context : 20 + context]).reshape(-1)
        first = hop * 15
        return float(np.abs(part[hop * context : hop * (context + 5)] - whole[first : first + hop * 5]).max())

    assert hop == 6
    assert error(overlap) < 1e-5
    assert error(overlap - 3) > 1e-4


def test_build_piper__random_noise_is_seeded() -> None:
    """A node that draws noise gets a fixed seed."""
    model = voice()
    model.graph.node.insert(1, helper.make_node("RandomNormalLike", ["rows"], ["noise"], name="/noise"))
    model.graph.node[2].input[0] = "noise"
    node = next(node for node in build_piper(model)["encode"].graph.node if node.op_type == "RandomNormalLike")

    assert [attribute.name for attribute in node.attribute] == ["seed"]


def test_build_piper__other_models() -> None:
    """A voice of many speakers, and a graph without the decoder's names, are refused."""
    model = voice()
    model.graph.input.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
    with pytest.raises(ModelError, match="not a single-speaker Piper voice"):
        build_piper(model)
    with pytest.raises(ModelError, match="no decoder to cut off"):
        build_piper(voice(decoder="/other/"))
