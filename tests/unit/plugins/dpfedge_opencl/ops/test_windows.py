# SPDX-License-Identifier: Apache-2.0
"""Where windows stand."""

from __future__ import annotations

from typing import Any

from dpfedge_opencl.ops.api import Node
from dpfedge_opencl.ops.windows import window


def _node(**attrs: Any) -> Node:
    return Node("Conv", "n", (), (), attrs)


def test_window__of_one_dimension_is_an_image_of_one_row() -> None:
    """Sizes, pads and strides are those of the second axis."""
    found = window(_node(pads=[1, 2], strides=[2]), (9,), (3,))
    assert (found.kernel, found.strides, found.before, found.after) == ((1, 3), (1, 2), (0, 1), (0, 2))
    assert found.result == (1, 5)


def test_window__pads_by_itself() -> None:
    """SAME keeps ceil(size / stride); an odd pad goes behind, or before."""
    assert window(_node(auto_pad="SAME_UPPER", strides=[2, 2]), (5, 6), (2, 3)).result == (3, 3)
    assert window(_node(auto_pad="SAME_UPPER"), (4,), (2,)).after == (0, 1)
    assert window(_node(auto_pad="SAME_LOWER"), (4,), (2,)).before == (0, 1)


def test_window__rounds_up_when_asked() -> None:
    """But no window begins in the border behind."""
    assert window(_node(kernel_shape=[2], strides=[2], ceil_mode=1), (5,), ()).result == (1, 3)
    assert window(_node(kernel_shape=[1], strides=[4], pads=[0, 1], ceil_mode=1), (5,), ()).result == (1, 2)
