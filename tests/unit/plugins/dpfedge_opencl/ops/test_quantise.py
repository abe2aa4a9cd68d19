# SPDX-License-Identifier: Apache-2.0
"""Between floats and codes."""

from __future__ import annotations

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one, onnxruntime_says


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("count", [7, 5000])
def test_dynamic_quantize_linear__over_all_of_it(count: int, flavour: str) -> None:
    """In one piece and in several; scale and zero too."""
    feeds = {"x": floats(count, seed=1)}
    agree(one("DynamicQuantizeLinear", feeds, outputs=3), flavour, feeds, 5e-3)


def test_dynamic_quantize_linear__of_nothing_but_zeros() -> None:
    """No division by zero: onnxruntime takes 1 for the scale."""
    feeds = {"x": np.zeros(9, np.float32)}
    made = one("DynamicQuantizeLinear", feeds, outputs=3)
    agree(made, "wide", feeds, 0.0, judge=onnxruntime_says)


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantize_and_back__by_axis(axis: int | None, flavour: str) -> None:
    """One scale for all, or for each row or column; halves go to the even number."""
    shape = {None: (), 0: (3,), 1: (4,)}[axis]
    constants = {"s": np.full(shape, 0.5, np.float32), "z": np.full(shape, 3, np.int8)}
    x = np.array([[0.25, 0.75, -0.25, 900], [1.1, -1.1, 0, -900], [2, 3, 4, 5]], np.float32)
    agree(one("QuantizeLinear", {"x": x}, constants, axis=1 if axis is None else axis), flavour, {"x": x}, 0.0)
    codes = np.arange(12, dtype=np.int8).reshape(3, 4)
    agree(one("DequantizeLinear", {"x": codes}, constants, axis=1 if axis is None else axis), flavour, {"x": codes})
