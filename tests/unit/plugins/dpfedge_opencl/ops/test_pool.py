# SPDX-License-Identifier: Apache-2.0
"""Pools over windows."""

from __future__ import annotations

from typing import Any

import pytest
from made_flavours import BOTH, agree, floats, one

CASES: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "pads": {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 1, 0, 1]},
    "up": {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
    "same": {"kernel_shape": [2, 2], "strides": [1, 1], "auto_pad": "SAME_UPPER"},
}


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("attrs", CASES.values(), ids=list(CASES))
def test_pool__of_every_kind(op: str, attrs: dict[str, Any], flavour: str) -> None:
    """An image whose sides do not divide."""
    feeds = {"x": floats(2, 3, 9, 8, seed=1)}
    agree(one(op, feeds, **attrs), flavour, feeds)


def test_average_pool__may_count_the_border() -> None:
    """As zeros."""
    feeds = {"x": floats(1, 2, 10, seed=1)}
    agree(one("AveragePool", feeds, kernel_shape=[3], pads=[1, 1], count_include_pad=1), "wide", feeds)
