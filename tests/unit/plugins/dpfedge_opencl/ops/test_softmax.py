# SPDX-License-Identifier: Apache-2.0
"""Softmax."""

from __future__ import annotations

import numpy as np
import pytest
from made_flavours import BOTH, agree, floats, one


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [1, -1])
def test_softmax__along_any_axis(op: str, axis: int, flavour: str) -> None:
    """Contiguous or not."""
    feeds = {"x": floats(3, 37, 19, seed=1, scale=5)}
    agree(one(op, feeds, axis=axis), flavour, feeds)


def test_softmax__of_large_and_masked_numbers() -> None:
    """Nothing overflows, and what is masked gets nothing."""
    x = np.array([[1e4, 1e4 - 1, -np.inf], [-1e4, -np.inf, -np.inf]], np.float32)
    agree(one("Softmax", {"x": x}), "wide", {"x": x})
