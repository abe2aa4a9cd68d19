# SPDX-License-Identifier: Apache-2.0
"""Executables: plans kept by shape, runs with memory of their own, closing."""

from __future__ import annotations

import numpy as np
import pytest
from made_plans import affine_plan, executable, right

from dpfedge.errors import BackendError


def test_run__gives_new_memory_each_time() -> None:
    """What one run returned is not written by the next."""
    made, x = executable(), np.arange(100, dtype=np.float32)

    first, second = made.run({"x": x})["y"], made.run({"x": x + 1})["y"]
    assert np.array_equal(first, right(x))
    assert np.array_equal(second, right(x + 1))


def test_run__takes_arrays_wherever_they_lie() -> None:
    """Memory objects begin at pages; what is before the array is passed as an offset."""
    made, memory = executable(), np.zeros(9000, np.float32)
    for start in (0, 1, 3, 17, 1023, 1025):
        x = memory[start : start + 77]
        x[:] = start
        assert np.array_equal(made.run({"x": x})["y"], right(x)), start


def test_plan__is_made_once_per_key_and_kept_in_bounds() -> None:
    """The key alone decides; old plans go."""
    made, calls = executable(), []
    for number in (1, 2, 1, *range(100)):
        made.plan(number, lambda number=number: calls.append(number) or affine_plan(4))  # type: ignore[misc,func-returns-value]
    assert calls[:2] == [1, 2]
    assert len(calls) == 102 - 2
    made.plan(2, lambda: calls.append(2) or affine_plan(4))  # type: ignore[func-returns-value]
    assert calls[-1] == 2


def test_close__says_so_afterwards() -> None:
    """A second close is nothing; a run is an error with the graph's name."""
    made = executable()
    made.close()
    made.close()
    for act in (made.bind, lambda: made.run({"x": np.zeros(3, np.float32)})):
        with pytest.raises(BackendError, match="graph g"):
            act()
