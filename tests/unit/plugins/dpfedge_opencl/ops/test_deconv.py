# SPDX-License-Identifier: Apache-2.0
"""Transposed convolution."""

from __future__ import annotations

from typing import Any

import pytest
from made_flavours import BOTH, agree, floats, one, onnxruntime_says

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "one dimension": ((1, 6, 11), (6, 5, 16), {"strides": [8], "pads": [4, 4]}),
    "two": ((2, 6, 4, 5), (6, 3, 2, 2), {"strides": [2, 2]}),
    "overlapping": ((1, 4, 5, 6), (4, 9, 3, 3), {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    "groups": ((1, 4, 7), (4, 3, 3), {"strides": [2], "group": 2}),
    "longer": ((1, 4, 7), (4, 3, 3), {"strides": [2], "output_padding": [1]}),
    "gaps": ((1, 4, 7), (4, 3, 2), {"strides": [3]}),
}


@pytest.mark.parametrize("flavour", BOTH)
@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_conv_transpose__of_every_kind(case: Any, flavour: str) -> None:
    """Each phase of the output is a convolution; onnxruntime judges, as `onnx.reference` knows no groups."""
    x, w, attrs = case
    feeds = {"x": floats(*x, seed=1)}
    bias = floats(w[1] * attrs.get("group", 1), seed=3)
    made = one("ConvTranspose", feeds, {"w": floats(*w, seed=2), "b": bias}, judge=onnxruntime_says, **attrs)
    agree(made, flavour, feeds, judge=onnxruntime_says)
