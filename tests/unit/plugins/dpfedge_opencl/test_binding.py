# SPDX-License-Identifier: Apache-2.0
"""Bindings: memory in place, links that take turns, stretches behind CPU calls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.plan import CpuCall, Plan, Slot
from made_plans import affine_plan, executable, launch, right, runtime

from dpfedge.backend.api import Array, GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec


def test_run__reads_and_writes_where_it_was_told() -> None:
    """New bytes in the same memory are seen without binding again; nothing is copied."""
    made = executable()
    call, x, y = made.bind(), np.ones(50, np.float32), np.full(50, np.nan, np.float32)
    before = made.runtime.memory.copied
    call.set_input("x", x)
    call.set_output("y", y)
    for value in (1.0, 2.0):
        x[:] = value
        call.run()
        assert np.array_equal(y, right(x))
    assert call.output("y") is y
    assert made.runtime.memory.copied == before or not made.runtime.memory.in_place


def test_run__with_another_size() -> None:
    """The arena grows, and a bound output of another shape is refused."""
    call = executable().bind()
    for n in (10, 5000, 3):
        x = np.arange(n, dtype=np.float32)
        call.set_input("x", x)
        call.run()
        assert np.array_equal(call.output("y"), right(x))
    call.set_output("y", np.zeros(4, np.float32))
    with pytest.raises(BackendError, match="another shape"):
        call.run()


def test_link__two_memories_take_turns() -> None:
    """The result stays readable until the next run, and is that run's input."""
    call, x = executable(1).bind(), np.zeros(8, np.float32)
    call.set_input("x", x)
    call.link("y", "x")
    for wanted in (1, 3, 7, 15):
        call.run()
        assert np.array_equal(call.output("y"), np.full(8, wanted, np.float32))
    with pytest.raises(BackendError, match="no such port"):
        call.link("y", "q")


class _Doubled:
    """A then: what follows a CPU call whose output's size depends on data."""

    values = ("count",)

    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Plan:
        (n,) = shapes["some"]
        self.calls.append((n, int(values["count"][0])))
        slots = {"some": Slot("cpu", 0, "f32", (n,), "some"), "y": Slot("output", 0, "f32", (n,), "y")}
        return Plan((launch("some", "y", n),), slots, 0, {"y": (n,)})


def test_stretches__of_a_size_that_data_decides() -> None:
    """A CPU call allocates, its memory is wrapped as it lies, and the rest is planned for what came out of it."""
    spec, count = TensorSpec("x", "f32", ("n",)), TensorSpec("count", "i64", (1,))
    port = TensorSpec("some", "f32", ("m",))
    inner = GraphView("g#0", memoryview(b""), (spec, count), (port,), {})
    first = HostExecutable(inner, lambda feeds: [feeds["x"][: int(feeds["count"][0])].copy()])
    then = _Doubled()
    slots = {"x": Slot("input", 0, "f32", (9,), "x"), "count": Slot("input", 0, "i64", (1,), "count")}
    plan = Plan((CpuCall(0, ("x", "count"), ("some",)),), slots, 0, {}, then)
    view = GraphView("g", memoryview(b""), (spec, count), (TensorSpec("y", "f32", ("m",)),), {})
    made = OpenClExecutable(Graph(view, lambda shapes, shared: plan, segments=[first]), runtime())

    x = np.arange(9, dtype=np.float32)
    for number in (4, 7, 4):
        found = made.run({"x": x, "count": np.array([number])})["y"]
        assert np.array_equal(found, right(x[:number], 1))
    assert then.calls == [(4, 4), (7, 7)]


def test_plan_data__and_what_comes_late() -> None:
    """Kernels read what the host worked out; parts that follow from other sizes are written when those change."""
    data = np.arange(6, dtype=np.float32)

    def late(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, bytes]]:
        return [(8, np.float32(shapes["x"][0]).tobytes())]

    slots = {"d": Slot("plan", 0, "f32", (6,)), "y": Slot("output", 0, "f32", (6,), "y")}
    plan = Plan((launch("d", "y", 6),), slots, 0, {"y": (6,)}, data=data.tobytes(), late=late)
    view = GraphView("g", memoryview(b""), (TensorSpec("x", "f32", ("n",)),), (TensorSpec("y", "f32", (6,)),), {})
    made = OpenClExecutable(Graph(view, lambda shapes, shared: plan, key=lambda shapes, shared: 0), runtime())
    for n in (5, 5, 11):
        data[2] = n
        assert np.array_equal(made.run({"x": np.zeros(n, np.float32)})["y"], right(data, 1))


def test_plans__that_are_not_kept_leave_no_trace() -> None:
    """More shapes than are kept prepared, back and forth."""
    made = executable()
    call = made.bind()
    for n in [*range(1, 30), *range(1, 30)]:
        x = np.full(n, n, np.float32)
        call.set_input("x", x)
        call.run()
        assert np.array_equal(call.output("y"), right(x))
    assert affine_plan(3).arena_bytes == 24
