# SPDX-License-Identifier: Apache-2.0
"""Shape arithmetic in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dpfedge_opencl.hostvalues import evaluate
from dpfedge_opencl.lower_onnx import DTYPES

I8 = np.int64
CASES: list[tuple[str, dict[str, Any], list[Any], Any]] = [
    ("Shape", {"start": 1}, [np.zeros((2, 3, 4))], [3, 4]),
    ("Size", {}, [np.zeros((2, 3))], 6),
    ("Gather", {}, [np.array([5, 6, 7]), np.array(-1)], 7),
    ("Concat", {"axis": 0}, [np.array([1]), np.array([2, 3])], [1, 2, 3]),
    ("Slice", {}, [np.arange(9), np.array([7]), np.array([-100]), np.array([0]), np.array([-3])], [7, 4, 1]),
    ("Div", {}, [np.array([-7, 7]), np.array([2, 2])], [-3, 3]),
    ("Reshape", {}, [np.arange(6).reshape(2, 3), np.array([0, -1])], [[0, 1, 2], [3, 4, 5]]),
    ("Unsqueeze", {}, [np.array(3), np.array([0])], [3]),
    ("Squeeze", {}, [np.array([[3]]), None], 3),
    ("Where", {}, [np.array([True, False]), np.array([1, 1]), np.array([2, 2])], [1, 2]),
    ("Range", {}, [np.array(1), np.array(7), np.array(3)], [1, 4]),
    ("ConstantOfShape", {"dtype": "i64", "value": 4}, [np.array([2])], [4, 4]),
    ("Expand", {}, [np.array([1]), np.array([2, 2])], [[1, 1], [1, 1]]),
    ("Cast", {"to": "i64"}, [np.array([1.7], np.float32)], [1]),
    ("ReduceProd", {"keepdims": 0}, [np.array([2, 3]), np.array([0])], 6),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_evaluate__is_what_onnx_says(case: tuple[str, dict[str, Any], list[Any], Any]) -> None:
    """One small case for each way of writing sizes."""
    op, attrs, inputs, wanted = case
    shapes = [() if one is None else one.shape for one in inputs]
    (found,) = evaluate(op, attrs, inputs, shapes)
    assert np.array_equal(found, np.array(wanted))
    assert found.shape == np.array(wanted).shape


def test_split__into_equal_parts_with_a_smaller_last() -> None:
    """`num_outputs` of operator set 18."""
    found = evaluate("Split", {"num_outputs": 2}, [np.arange(5), None], [(5,), ()])
    assert [one.tolist() for one in found] == [[0, 1, 2], [3, 4]]


def test_dtypes__all_have_names() -> None:
    """Ours, for ONNX's numbers."""
    assert DTYPES[1] == "f32"
