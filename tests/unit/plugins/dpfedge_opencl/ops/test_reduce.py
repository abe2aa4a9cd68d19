# SPDX-License-Identifier: Apache-2.0
"""Reductions."""

from __future__ import annotations

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("axes", [[-1], [1], [0, 2], [1, 2, 3]], ids=str)
def test_reduce__over_any_axes(axes: list[int], flavour: str) -> None:
    """Along rows, across columns, and over axes that are no neighbours."""
    feeds = {"x": floats(2, 3, 5, 40, seed=1)}
    for op, keep in (("ReduceMean", 1), ("ReduceSum", 0), ("ReduceMax", 1), ("ReduceMin", 0)):
        agree(one(op, feeds, {"axes": np.array(axes)}, keepdims=keep), flavour, feeds)


def test_reduce__of_integers() -> None:
    """To the last bit."""
    feeds = {"x": np.random.default_rng(1).integers(-(2**40), 2**40, (3, 50))}
    agree(one("ReduceSum", feeds, {"axes": np.array([1])}), "wide", feeds, 0.0)


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("last", [0, 1])
def test_arg__finds_the_first_or_the_last(last: int, flavour: str) -> None:
    """Equal elements, on short rows and long ones."""
    x = np.random.default_rng(1).integers(0, 5, (4, 3, 100)).astype(np.float32)
    for axis in (1, 2):
        for op in ("ArgMax", "ArgMin"):
            agree(one(op, {"x": x}, axis=axis, select_last_index=last, keepdims=axis % 2), flavour, {"x": x}, 0.0)


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pool__leaves_one_for_each_channel(op: str) -> None:
    """Of an image."""
    feeds = {"x": floats(2, 3, 7, 9, seed=1)}
    agree(one(op, feeds), "wide", feeds)
