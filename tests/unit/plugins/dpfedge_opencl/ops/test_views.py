# SPDX-License-Identifier: Apache-2.0
"""Shapes that change without their values."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.api import Node, Value
from dpfedge_opencl.ops.views import Reshape, Squeeze
from made_nodes import compare, graph_of, model, node, plan_of, port


def _value(shape: tuple[int, ...]) -> Value:
    return Value("x", "f32", shape)


def _sizes(*sizes: int) -> Value:
    return Value("s", "i64", (len(sizes),), np.array(sizes))


def test_reshape__fills_in_what_is_left() -> None:
    """0 keeps a size unless zeros are allowed."""
    made = Node("Reshape", "r", ("x", "s"), ("y",), {})
    assert Reshape().shape(made, [_value((2, 3, 4)), _sizes(0, -1)]) == [("f32", (2, 12))]
    made.attrs["allowzero"] = 1
    assert Reshape().shape(made, [_value((0, 3)), _sizes(3, 0)]) == [("f32", (3, 0))]


def test_reshape__another_count_is_an_error() -> None:
    """It says which."""
    with pytest.raises(ValueError, match="6 elements"):
        Reshape().shape(Node("Reshape", "r", ("x", "s"), ("y",), {}), [_value((6,)), _sizes(4)])


def test_squeeze__an_axis_that_is_not_1_is_an_error() -> None:
    """Values would be lost."""
    with pytest.raises(ValueError, match="not all 1"):
        Squeeze().shape(Node("Squeeze", "q", ("x", "s"), ("y",), {}), [_value((2, 1)), _sizes(0)])


def test_views__take_no_launch() -> None:
    """Nor memory."""
    nodes = [
        node("Exp", "x", "a"), node("Reshape", "a s", "b"), node("Squeeze", "b", "c"), node("Unsqueeze", "c axes", "d"),
        node("Flatten", "d", "e", axis=2), node("MatMul", "e w", "y"),
    ]  # fmt: skip
    constants = {"s": np.array([1, 2, 6]), "axes": np.array([0]), "w": np.eye(6, dtype=np.float32)}
    made = model(nodes, [port("x", [3, 4])], [port("y", None)], constants)
    entries = [getattr(one, "kernel", None) for one in plan_of(graph_of(made), x=(3, 4)).steps]
    assert all(one is not None and one.entry not in ("copy", "move") for one in entries)
    compare(made, x=np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4))
