# SPDX-License-Identifier: Apache-2.0
"""Operators of halves."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.halves import only_floats
from made_flavours import BOTH, agree, floats, one


@pytest.mark.parametrize("flavour", BOTH)
def test_halves__are_computed_as_floats(flavour: str) -> None:
    """Inputs, weights and outputs of halves."""
    feeds = {"a": floats(3, 40, seed=1).astype(np.float16)}
    agree(one("MatMul", feeds, {"w": floats(40, 50, seed=2).astype(np.float16)}), flavour, feeds, 2e-3)


def test_only_floats__says_what_is_no_float() -> None:
    """Of all inputs, or of some."""
    assert only_floats(("f32", "f16", "")) is None
    assert "f64" in str(only_floats(("f32", "f64")))
    assert only_floats(("f32", "i64"), 0) is None
