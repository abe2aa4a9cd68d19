# SPDX-License-Identifier: Apache-2.0
"""Sums along an axis."""

from __future__ import annotations

import numpy as np
import pytest
from made_nodes import compare, model, node, port


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumsum__from_either_end(axis: int, exclusive: int, reverse: int) -> None:
    """With or without the element itself."""
    made = model(
        [node("CumSum", "x axis", "y", exclusive=exclusive, reverse=reverse)], [port("x", [2, 3, 4], "i8")],
        [port("y", [2, 3, 4], "i8")], {"axis": np.array(axis)},
    )  # fmt: skip
    compare(made, x=np.arange(24).reshape(2, 3, 4))
