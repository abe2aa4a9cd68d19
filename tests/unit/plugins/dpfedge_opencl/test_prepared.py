# SPDX-License-Identifier: Apache-2.0
"""Prepared plans: arguments are set once, and again only where memory moved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dpfedge_opencl.kernels import Kernels
from dpfedge_opencl.plan import CpuCall, Slot
from dpfedge_opencl.prepared import Prepared, source_of
from dpfedge_opencl.stream import Batch, Stream
from made_plans import affine_plan, runtime

from dpfedge.errors import BackendError


def test_source__is_the_memory_a_value_lies_in() -> None:
    """An arena and a plan's data are known by their stretch, ports and sections by name."""
    assert source_of(Slot("arena", 8, "f32", (1,), stretch=2)) == ("arena", 2)
    assert source_of(Slot("plan", 8, "f32", (1,))) == ("plan", 0)
    assert source_of(Slot("weight", 8, "f32", (1,), "weights.1")) == ("weight", "weights.1")


def test_point__sets_what_moved() -> None:
    """The same memory again calls nothing; another one is seen by each kernel that uses it."""
    here = runtime()
    stream = Stream(here, "graph g")
    prepared = Prepared(affine_plan(8, 1), here, Kernels(here.native), stream.handle, "graph g")
    assert set(prepared.sources) == {("input", "x"), ("output", "y")}
    arrays = [np.full(8, value, np.float32) for value in (1, 2)]
    y = np.zeros(8, np.float32)
    written = here.memory.wrap(y, write=True)  # kernels keep nothing alive
    prepared.point(("output", "y"), written)
    for array in arrays:
        span = here.memory.wrap(array, write=False)
        for _ in range(2):
            prepared.point(("input", "x"), span)
        (batch,) = prepared.steps
        assert isinstance(batch, Batch)
        stream.run(batch)
        if here.memory.in_place:
            assert np.array_equal(y, array * 2 + 1)


def test_steps__cpu_calls_part_the_launches() -> None:
    """Launches before and behind a CPU call are batches of their own."""
    plan = affine_plan(8, 2)
    plan = replace(plan, steps=(plan.steps[0], CpuCall(0, ("t0",), ("t0",)), plan.steps[1]))
    here = runtime()
    steps = Prepared(plan, here, Kernels(here.native), Stream(here, "g").handle, "g").steps
    assert [isinstance(step, Batch) for step in steps] == [True, False, True]


def test_prepared__names_what_cannot_be() -> None:
    """A value without a place, a kernel the program lacks."""
    here = runtime()
    plan, handle = affine_plan(8, 1), Stream(here, "g").handle
    with pytest.raises(BackendError, match=r"no place.*found y"):
        Prepared(replace(plan, slots={"x": plan.slots["x"]}), here, Kernels(here.native), handle, "g")
    (step,) = plan.steps
    wrong = replace(step, kernel=replace(step.kernel, entry="nothing"))  # type: ignore[type-var,union-attr]
    with pytest.raises(BackendError, match=r"clCreateKernel\(nothing\).*INVALID_KERNEL_NAME"):
        Prepared(replace(plan, steps=(wrong,)), here, Kernels(here.native), handle, "g")


def test_prepared__of_launches_that_were_there_before() -> None:
    """The next plan's kernels come with the numbers and the memory they had; only what differs is set."""
    here = runtime()
    kernels, handle, plan = Kernels(here.native), Stream(here, "g").handle, affine_plan(8, 3)
    arrays = {source: np.zeros(4096, np.float32) for source in Prepared(plan, here, kernels, handle, "g").sources}
    spans = {source: here.memory.wrap(array, write=True) for source, array in arrays.items()}
    first = Prepared(plan, here, kernels, handle, "g")
    first.point_all(spans)
    taken = list(first._kernels)
    first.end()
    second = Prepared(replace(plan), here, kernels, handle, "g")
    assert second._kernels == taken
    calls: list[object] = []
    counting = type("Counting", (), {"clSetKernelArg": lambda *given: calls.append(given) or 0})()  # type: ignore[func-returns-value]
    for kernel in taken:
        kernel._native = counting
    second.point_all(spans)
    assert not calls
    source = ("output", "y")
    second.point(source, here.memory.wrap(arrays[source], write=True))
    assert [given[2] for given in calls] == [2]
