# SPDX-License-Identifier: Apache-2.0
"""A text reader without training: every 8 columns are a character, whose class is their red value divided by 10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.api import Budget
from dpfedge.stage.text_read.stage import TextReadStage

CHARACTERS = "abcde "
CLASSES = len(CHARACTERS) + 1


def red_reader(width: int | str) -> onnx.ModelProto:
    """`shares`: 1 / (1 + distance of red/10 from the class)², as a share of the row's sum."""
    node = helper.make_node
    nodes = [
        node("Slice", ["line", "starts", "ends", "axes", "steps"], ["red"]),
        node("Cast", ["red"], ["floats"], to=TensorProto.FLOAT),
        node("Reshape", ["floats", "column"], ["values"]),
        node("Mul", ["values", "scale"], ["found"]),
        node("Sub", ["found", "classes"], ["apart"]),
        node("Abs", ["apart"], ["distance"]),
        node("Mul", ["distance", "sharp"], ["far"]),
        node("Softmax", ["far"], ["shares"], axis=1),
    ]
    constants = {
        "starts": np.array([0, 0, 0], np.int64), "ends": np.array([1, 1 << 30, 1], np.int64),
        "axes": np.array([0, 1, 2], np.int64), "steps": np.array([1, 8, 1], np.int64),
        "column": np.array([-1, 1], np.int64), "scale": np.array(0.1, np.float32),
        "classes": np.arange(CLASSES, dtype=np.float32)[None], "sharp": np.array(-9, np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "read",
        [helper.make_tensor_value_info("line", TensorProto.UINT8, [48, width, 3])],
        [helper.make_tensor_value_info("shares", TensorProto.FLOAT, ["steps", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture
def red_model(driver: Any) -> Callable[..., Any]:
    """`red_model()`, or `red_model(64, 128)` for fixed widths only."""

    def make(*widths: int) -> Any:
        graphs = {f"read@width-{width}": red_reader(width) for width in widths}
        config = {"classes": CLASSES, "height": 48, "step": 8}
        assets = {"characters.txt": "\n".join(CHARACTERS).encode()}
        return driver.Model("read", graphs or {"read": red_reader("width")}, assets, config)

    return make


@pytest.fixture
def read_stage(red_model: Callable[..., Any]) -> Callable[..., TextReadStage]:
    """A warm stage with such settings."""

    def make(*widths: int, **settings: Any) -> TextReadStage:
        stage = TextReadStage(red_model(*widths), settings, Budget())
        stage.warm()
        return stage

    return make


@pytest.fixture
def written() -> Callable[..., np.ndarray]:
    """`written("abba")`: the picture u8[48, 8·n, 3] that says so; `_` is nothing, `?` is between two characters."""

    def make(text: str) -> np.ndarray:
        classes = [{"_": 0.0, "?": 1.5}.get(letter, CHARACTERS.find(letter) + 1.0) for letter in text]
        line = np.zeros((48, 8 * len(text), 3), np.uint8)
        line[:, :, 0] = np.repeat(np.array(classes) * 10, 8)
        return line

    return make
