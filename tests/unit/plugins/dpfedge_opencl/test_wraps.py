# SPDX-License-Identifier: Apache-2.0
"""Memory objects used again: the caller's arrays as long as they live, results that nobody holds."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.wraps import Results, Wraps
from made_plans import executable, right, runtime


def _address(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> int:
    return int(array.__array_interface__["data"][0])


def test_wraps__once_while_the_owner_lives() -> None:
    """Views of one array at one place are one memory; another length or right to write is another."""
    wraps, owner = Wraps(runtime().memory), np.zeros(64, np.float32)
    span = wraps.span(owner[8:16], _address(owner[8:]))
    assert wraps.span(owner[8:16], _address(owner[8:])) is span
    assert wraps.span(owner[8:24], _address(owner[8:])) is not span
    fixed = owner[8:16]
    fixed.flags.writeable = False
    assert wraps.span(fixed, _address(fixed)) is not span


def test_wraps__keep_no_array_alive_and_are_bounded() -> None:
    """What the caller drops is gone from the table at once."""
    wraps, owner = Wraps(runtime().memory), np.zeros(4096, np.float32)
    for start in range(40):
        wraps.span(owner[start:], _address(owner[start:]))
    assert len(wraps._known) == 16
    del owner
    assert not wraps._known


def test_results__are_written_again_only_when_no_view_is_left() -> None:
    """Whatever of it the caller holds: the array, a part of it, its bytes."""
    results, dtype = Results(runtime().memory), np.dtype(np.float32)
    first, span, _ = results.take((8,), dtype)
    part = first[2:].reshape(3, 2).view(np.int32)
    del first
    second, other, _ = results.take((8,), dtype)
    assert other is not span
    seen = memoryview(second)
    del second, part
    assert results.take((8,), dtype)[1] is span
    held = results.take((8,), dtype)[0]
    third = results.take((8,), dtype)
    assert third[1] not in (span, other)
    assert not np.shares_memory(third[0], held)
    assert not np.shares_memory(third[0], np.asarray(seen))
    assert third[0].shape == (8,)


def test_results__large_ones_are_the_callers_alone() -> None:
    """Memory of that size is not held back."""
    results, dtype = Results(runtime().memory), np.dtype(np.float32)
    array, _, _ = results.take((1 << 20,), dtype)
    assert array.base is None
    assert not results._kept


def test_executable__results_stay_what_they_were() -> None:
    """Many runs whose results are all held."""
    graph = executable(2)
    feeds = [np.full(64, number, np.float32) for number in range(8)]
    found = [graph.run({"x": x})["y"] for x in feeds]
    for x, y in zip(feeds, found, strict=True):
        assert np.array_equal(y, right(x, 2))
