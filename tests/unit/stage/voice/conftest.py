# SPDX-License-Identifier: Apache-2.0
"""A toy Piper voice: phoneme ids become a latent of 4 frames each, the decoder is one convolution and a repeat."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

FRAMES_PER_ID = 4
CARD = {
    "audio": {"sample_rate": 22050},
    "espeak": {"voice": "en-us"},
    "inference": {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8},
    "phoneme_id_map": {
        mark: [number] for number, mark in enumerate("_^$ .,?!abdefhijklmnoprstuvwzðŋɐɑɔəɚɛɡɪɹʃʊʌʒˈˌːθæ")
    },
}


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any]) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "toy", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _encode() -> tuple[list[Any], list[Any], dict[str, Any]]:
    nodes = [
        helper.make_node("Cast", ["input"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "small"], ["scaled"]),
        helper.make_node("Unsqueeze", ["scaled", "two"], ["column"]),
        helper.make_node("Expand", ["column", "repeat"], ["wide"]),
        helper.make_node("Reshape", ["wide", "flat"], ["line"]),
        helper.make_node("Concat", ["line", "line"], ["z"], axis=1),
    ]
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, [1, "t"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    constants = {
        "small": np.array(0.02, np.float32),
        "two": np.array([2], np.int64),
        "repeat": np.array([1, 1, FRAMES_PER_ID], np.int64),
        "flat": np.array([1, 1, -1], np.int64),
    }
    return nodes, inputs, constants


def _decode(source: str) -> tuple[list[Any], dict[str, Any]]:
    nodes = [
        helper.make_node("Conv", [source, "kernel"], ["mixed"], pads=[10, 10]),
        helper.make_node("Unsqueeze", ["mixed", "three"], ["tall"]),
        helper.make_node("Expand", ["tall", "hop"], ["long"]),
        helper.make_node("Reshape", ["long", "shape"], ["output"]),
    ]
    constants = {
        "kernel": np.random.default_rng(1).normal(0, 0.05, (1, 2, 21)).astype(np.float32),
        "three": np.array([3], np.int64),
        "hop": np.array([1, 1, 1, 256], np.int64),
        "shape": np.array([1, 1, 1, -1], np.int64),
    }
    return nodes, constants


@pytest.fixture(scope="session")
def graphs() -> dict[str, onnx.ModelProto]:
    """`encode`, `decode` and `synthesise` of the toy voice; the last is the two others in one graph."""
    encode, inputs, first = _encode()
    decode, second = _decode("z")
    latent = helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 2, "frames"])
    output = helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 1, "time"])
    return {
        "encode": _model(encode, inputs, [latent], first),
        "decode": _model(decode, [latent], [output], second),
        "synthesise": _model([*encode, *decode], inputs, [output], {**first, **second}),
    }


@pytest.fixture(scope="session")
def card() -> dict[str, Any]:
    """The toy voice's description."""
    return CARD
