# SPDX-License-Identifier: Apache-2.0
"""A text detector without training: what is dark is text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from dpfedge.backend.api import Budget
from dpfedge.stage.text_detect.stage import TextDetectStage


def darkness(height: int | str, width: int | str) -> onnx.ModelProto:
    """`map` = 1 − red / 255."""
    nodes = [
        helper.make_node("Slice", ["frame", "zero", "one", "two"], ["red"]),
        helper.make_node("Cast", ["red"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["floats", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "offset"], ["dark"]),
        helper.make_node("Squeeze", ["dark", "two"], ["map"]),
    ]
    numbers = [helper.make_tensor(name, TensorProto.INT64, [1], [value]) for name, value in
               (("zero", 0), ("one", 1), ("two", 2))]  # fmt: skip
    floats = [helper.make_tensor(name, TensorProto.FLOAT, [], [value]) for name, value in
              (("scale", -1 / 255), ("offset", 1.0))]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "detect",
        [helper.make_tensor_value_info("frame", TensorProto.UINT8, [height, width, 3])],
        [helper.make_tensor_value_info("map", TensorProto.FLOAT, [height, width])],
        [*numbers, *floats],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.fixture
def dark_model(driver: Any) -> Callable[..., Any]:
    """`dark_model()`, or `dark_model((64, 96), …)` for fixed shapes only."""

    def make(*sizes: tuple[int, int]) -> Any:
        graphs = {f"detect@height-{high}@width-{wide}": darkness(high, wide) for high, wide in sizes}
        return driver.Model("detect", graphs or {"detect": darkness("height", "width")}, {}, {"multiple": 32})

    return make


@pytest.fixture
def detect_stage(dark_model: Callable[..., Any]) -> Callable[..., TextDetectStage]:
    """A warm stage with such settings."""

    def make(*sizes: tuple[int, int], **settings: Any) -> TextDetectStage:
        stage = TextDetectStage(dark_model(*sizes), settings, Budget())
        stage.warm()
        return stage

    return make
