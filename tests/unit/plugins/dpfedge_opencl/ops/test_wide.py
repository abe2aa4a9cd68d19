# SPDX-License-Identifier: Apache-2.0
"""Vectors of any element: lanes that fit a register, and text that moves them."""

from __future__ import annotations

import pytest
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.ops.wide import lanes_of, loaded, moved, vector_type


@pytest.mark.parametrize(
    ("width", "size", "wanted"), [(16, 4, 16), (8, 4, 8), (8, 8, 4), (8, 1, 16), (4, 4, 4), (4, 8, 2), (1, 8, 2)]
)
def test_no_vector_is_wider_than_a_register_or_than_the_language_has(width: int, size: int, wanted: int) -> None:
    assert lanes_of(size, Facts("any", True, 2, width, 64)) == wanted


def test_a_cpu_reads_memory_that_lies_anywhere_and_others_ask_the_language() -> None:
    assert "aligned(sizeof(uint))" in vector_type("uint", 8, True)
    assert not vector_type("uint", 8, False)
    assert loaded(8, "p + i", True) == "(*(__global const WIDE *)(p + i))"
    assert moved(8, "a", "b", True) == "*(__global WIDE *)(b) = (*(__global const WIDE *)(a));"
    assert moved(4, "a", "b", False) == "vstore4(vload4(0, a), 0, b);"
