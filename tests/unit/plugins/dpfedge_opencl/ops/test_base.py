# SPDX-License-Identifier: Apache-2.0
"""What moving operators share."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.api import Value
from dpfedge_opencl.ops.base import axis_of, contiguous, ints, need


def test_axis_of__counts_from_either_end() -> None:
    """As ONNX does."""
    assert axis_of(-1, 3) == 2
    assert axis_of(0, 0) == 0
    with pytest.raises(ValueError, match="axis 3"):
        axis_of(3, 3)


def test_contiguous__steps_of_a_whole_tensor() -> None:
    """The last axis is the fastest."""
    assert contiguous((2, 3, 4)) == (12, 4, 1)


def test_ints__of_what_is_not_known_is_an_error() -> None:
    """By the value's name."""
    assert ints(None) is None
    assert ints(Value("a", "i64", (2,), np.array([1, 2]))) == [1, 2]
    with pytest.raises(ValueError, match="sizes"):
        ints(Value("sizes", "i64", (2,)))


def test_need__an_absent_input_is_an_error() -> None:
    """By its number."""
    with pytest.raises(ValueError, match="input 1"):
        need([None, None], 1)
