# SPDX-License-Identifier: Apache-2.0
"""Resizing, on this machine's device against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.ops.resize import coordinates
from made_nodes import compare, graph_of, model, node, port

X = np.random.default_rng(6).standard_normal((1, 2, 5, 7)).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("how", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
@pytest.mark.parametrize("scales", [(2.0, 2.0), (0.6, 1.5)])
def test_resize__every_rule_of_coordinates(mode: str, how: str, scales: tuple[float, float]) -> None:
    """Larger and smaller."""
    if mode == "nearest" and how == "align_corners":
        pytest.skip("onnx's reference rounds halves that float arithmetic does not meet")
    if how == "align_corners" and scales[1] == 1.5:
        pytest.skip("onnx's reference does not round the size of the result, onnxruntime does")
    made = model(
        [node("Resize", "x - scales", "y", mode=mode, coordinate_transformation_mode=how)], [port("x", [1, 2, 5, 7])],
        [port("y", None)], {"scales": np.array([1, 1, *scales], np.float32)},
    )  # fmt: skip
    compare(made, 1e-5, x=X)


def test_resize__to_sizes_along_some_axes() -> None:
    """Operator set 18."""
    made = model(
        [node("Resize", "x - - sizes", "y", mode="linear", axes=[2, 3])], [port("x", [1, 2, 5, 7])], [port("y", None)],
        {"sizes": np.array([9, 4])},
    )  # fmt: skip
    compare(made, 1e-5, x=X)


def test_resize__cubic_is_the_cpus() -> None:
    """With the reason."""
    made = model(
        [node("Resize", "x - scales", "y", mode="cubic")], [port("x", [1, 2, 5, 7])], [port("y", None)],
        {"scales": np.array([1, 1, 2, 2], np.float32)},
    )  # fmt: skip
    assert "cubic" in graph_of(made).segments[0].reason


def test_coordinates__are_in_the_source() -> None:
    """Twice as large: halves between."""
    assert coordinates("half_pixel", 2, 4, 2.0).tolist() == [-0.25, 0.25, 0.75, 1.25]
