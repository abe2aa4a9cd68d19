# SPDX-License-Identifier: Apache-2.0
"""Where values lie."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.ops.api import Value
from dpfedge_opencl.plan import Kernel, Launch, Tensor
from dpfedge_opencl.planning import Placing, Root

KERNEL = Kernel("f", "")


def _launch(*names: str) -> Launch:
    return Launch(KERNEL, tuple(Tensor(name) for name in names), (1,), None, "n")


def test_place__views_lie_in_the_memory_they_are_views_of() -> None:
    """With their offset."""
    whole = Root("arena", "a", 4000)
    values = {name: Value(name, "f32", (10,)) for name in ("a", "b", "x")}
    roots = {"a": (whole, 0), "b": (whole, 40), "x": (Root("input", "x"), 0)}
    slots, size = Placing(values, {}, roots, 0).place([_launch("x", "a"), _launch("b")], set(), set(), [])
    assert slots["b"].offset == slots["a"].offset + 40
    assert size == 4096


def test_place__what_the_next_stretch_reads_stays() -> None:
    """No other value gets its memory."""
    roots = {name: (Root("arena", name, 1000), 0) for name in ("a", "b", "c")}
    values = {name: Value(name, "f32", (250,)) for name in roots}
    steps = [_launch("a"), _launch("b"), _launch("c")]
    slots, _ = Placing(values, {}, roots, 1).place(steps, {"a"}, set(), [])
    assert slots["b"].offset == slots["c"].offset != slots["a"].offset
    assert slots["a"].stretch == 1


def test_place__what_the_host_knows_is_data_of_the_plan() -> None:
    """Once, however often it is read."""
    known = np.array([1, 2], np.int64)
    placing = Placing({"k": Value("k", "i64", (2,), known)}, {"k": known}, {}, 0)
    slots, size = placing.place([_launch("k"), _launch("k")], set(), set(), [])
    assert (slots["k"].home, slots["k"].offset, size) == ("plan", 0, 0)
    assert bytes(placing.data) == known.tobytes()
