# SPDX-License-Identifier: Apache-2.0
"""Walks with steps."""

from __future__ import annotations

from dpfedge_opencl.ops.strided import merge


def test_merge__axes_that_walk_alike_are_one() -> None:
    """A whole tensor is one row, whatever its shape."""
    assert merge((2, 3, 4), (12, 4, 1), (12, 4, 1)) == ((), 1, (24, 1, 1))


def test_merge__a_transposed_plane_has_an_outer_axis() -> None:
    """The innermost axis of the result is walked with steps."""
    assert merge((1, 5, 7), (0, 1, 5), (35, 7, 1)) == (((5, 1, 7),), 5, (7, 5, 1))


def test_merge__of_one_element() -> None:
    """Nothing is left."""
    assert merge((1, 1), (1, 1), (1, 1)) == ((), 1, (1, 1, 1))
