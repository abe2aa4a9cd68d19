# SPDX-License-Identifier: Apache-2.0
"""Shapes with made-up sizes."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl import ops
from dpfedge_opencl.lower_shapes import sample_shapes
from dpfedge_opencl.ops.api import Node

from dpfedge.tensors import TensorSpec


def test_sample_shapes__tell_equal_from_unequal() -> None:
    """A size that only one set has by accident is not equal in both."""
    assert ops.__all__
    nodes = [Node("Add", "a", ("x", "w"), ("y",), {}), Node("Unheard", "b", ("y",), ("z",), {})]
    found = sample_shapes(nodes, set(), [TensorSpec("x", "f32", ("n", 1))], {"w": np.zeros((1, 2080), np.float32)})
    assert found["y"][0] == (2080, 2080)
    assert found["y"][1] == (32 * 101, 2080)
    assert "z" not in found
