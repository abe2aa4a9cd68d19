# SPDX-License-Identifier: Apache-2.0
"""One arena for values that live at different times."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.memoryplan import ALIGN, assign


def test_assign__shares_memory_between_values_that_never_meet() -> None:
    """A chain of equal values needs two places."""
    count = 20
    offsets, size = assign([1000] * count, list(range(count)), [step + 1 for step in range(count)])
    assert size == 2 * 1024
    assert len(set(offsets)) == 2


def test_assign__nothing_is_overwritten_while_it_is_read() -> None:
    """Whatever the lives: no two that meet overlap."""
    random = np.random.default_rng(3)
    for _ in range(30):
        count = 60
        sizes = random.integers(0, 5000, count).tolist()
        first = random.integers(0, 40, count).tolist()
        last = [one + int(random.integers(0, 8)) for one in first]
        offsets, size = assign(sizes, first, last)
        for a in range(count):
            assert offsets[a] % ALIGN == 0
            assert offsets[a] + sizes[a] <= size
            for b in range(a):
                meet = first[a] <= last[b] and first[b] <= last[a] and sizes[a] and sizes[b]
                apart = offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]
                assert apart or not meet


def test_assign__of_nothing() -> None:
    """No arena."""
    assert assign([], [], []) == ([], 0)
