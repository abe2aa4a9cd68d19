# SPDX-License-Identifier: Apache-2.0
"""Memory of the driver's own: the same answers by copies that are counted, and CPU calls around which it is mapped."""

from __future__ import annotations

import numpy as np
import pytest
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.mapped import Mapped
from dpfedge_opencl.plan import CpuCall, Plan
from dpfedge_opencl.runtime import Runtime, native_device
from made_plans import a_device, affine_plan, launch, right

from dpfedge.backend.api import GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.tensors import TensorSpec

PORTS = (TensorSpec("x", "f32", ("n",)),), (TensorSpec("y", "f32", ("n",)),)


@pytest.fixture(scope="module")
def copying() -> Runtime:
    """A runtime as a driver has it that shares nothing but its own memory."""
    return Runtime(native_device(a_device()), "alloc_host_ptr")


def test_run__copies_in_and_out(copying: Runtime) -> None:
    """Each byte of a port is counted once per run, and new contents are seen."""
    view = GraphView("g", memoryview(b""), *PORTS, {})
    made = OpenClExecutable(Graph(view, lambda shapes, shared: affine_plan(shapes["x"][0])), copying)
    call, x, y = made.bind(), np.ones(100, np.float32), np.zeros(100, np.float32)
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    before = copying.memory.copied
    for value in (3.0, 4.0):
        x[:] = value
        call.run()
        assert np.array_equal(y, right(x))
    assert copying.memory.copied - before == 2 * (400 + 400)


def test_cpu_call__sees_the_arena_mapped(copying: Runtime) -> None:
    """Before it the arena is mapped, behind it given back: kernels read what it wrote."""
    plan = affine_plan(50, 3)
    steps = (launch("x", "t0", 50), CpuCall(0, ("t0",), ("t1",)), launch("t1", "y", 50))
    inner = GraphView("g#0", memoryview(b""), PORTS[0], PORTS[1], {})
    half = HostExecutable(inner, lambda feeds: [feeds["x"] / 2])
    made = OpenClExecutable(
        Graph(
            GraphView("g", memoryview(b""), *PORTS, {}),
            lambda shapes, shared: Plan(steps, plan.slots, 400, plan.shapes),
            segments=[half],
        ),
        copying,
    )
    x = np.arange(50, dtype=np.float32)
    for _ in range(2):
        assert np.array_equal(made.run({"x": x})["y"], right(right(x, 1) / 2, 1))


def test_block__maps_until_it_is_released(copying: Runtime) -> None:
    """What was written while mapped is there at the next map."""
    memory = copying.memory
    assert isinstance(memory, Mapped)
    block = memory.allocate(100)
    block.host()[:] = 9
    assert block.host() is block.host()
    block.release()
    block.release()
    assert block.host().sum() == 900
    block.release()
