# SPDX-License-Identifier: Apache-2.0
"""One value everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from made_nodes import compare, model, node, port
from onnx import helper


@pytest.mark.parametrize("kind", ["f4", "i8", "u1", "f2", "?"])
def test_fill__whatever_the_dtype(kind: str) -> None:
    """And its size."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    value = helper.make_tensor("v", number, [1], np.array([3 if kind != "?" else 1], kind))
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "c", value=value), node("Identity", "c", "y")]
    compare(model(nodes, [port("x", ["n"])], [port("y", ["n"], kind)]), x=np.zeros(77, np.float32))
