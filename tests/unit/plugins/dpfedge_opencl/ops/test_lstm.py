# SPDX-License-Identifier: Apache-2.0
"""LSTM."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from made_flavours import BOTH, agree, answers, floats, one
from onnx import helper, numpy_helper


@pytest.mark.parametrize("flavour", BOTH)
def test_lstm__forward(flavour: str) -> None:
    """Several steps from a given state."""
    feeds = {"x": floats(4, 1, 6, seed=1), "h": floats(1, 1, 20, seed=2), "c": floats(1, 1, 20, seed=3)}
    constants = {"w": floats(1, 80, 6, seed=4), "r": floats(1, 80, 20, seed=5), "b": floats(1, 160, seed=6)}
    agree(one("LSTM", feeds, constants, 3, "x w r b - h c", hidden_size=20), flavour, feeds)


@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
def test_lstm__in_other_directions(direction: str) -> None:
    """onnxruntime says what is right: `onnx.reference` knows one direction."""
    two = 2 if direction == "bidirectional" else 1
    feeds = {"x": floats(5, 3, 6, seed=1)}
    weights = {"w": floats(two, 80, 6, seed=4), "r": floats(two, 80, 20, seed=5), "b": floats(two, 160, seed=6)}
    node = helper.make_node("LSTM", ["x", *weights], ["y0", "y1", "y2"], "l", hidden_size=20, direction=direction)
    shapes = ((5, two, 3, 20), (two, 3, 20), (two, 3, 20))
    graph = helper.make_graph(
        [node], "made", [helper.make_tensor_value_info("x", 1, (5, 3, 6))],
        [helper.make_tensor_value_info(f"y{at}", 1, shape) for at, shape in enumerate(shapes)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)])
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, feeds)
    found = answers(made, "wide", feeds)
    for at in range(3):
        np.testing.assert_allclose(found[f"y{at}"], wanted[at], rtol=1e-4, atol=1e-5)
