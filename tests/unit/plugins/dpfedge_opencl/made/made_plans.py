# SPDX-License-Identifier: Apache-2.0
"""Plans written by hand: a chain of one small kernel, and a graph of it, for tests of what runs plans."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from dpfedge_opencl.devices import devices_of
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.plan import Kernel, Launch, Plan, Slot, Tensor
from dpfedge_opencl.runtime import Runtime, open_runtime

from dpfedge.backend.api import Array, Device, GraphView
from dpfedge.errors import Unavailable
from dpfedge.tensors import TensorSpec

__all__ = ["AFFINE", "a_device", "affine_plan", "executable", "launch", "right", "runtime"]

SOURCE = """__kernel void affine(__global uchar *a, const ulong ao, __global uchar *b, const ulong bo, const uint n) {
  __global float *x = (__global float *)(a + ao), *y = (__global float *)(b + bo);
  uint i = get_global_id(0);
  if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
"""
AFFINE = Kernel("affine", SOURCE)


def a_device() -> Device:
    """The first OpenCL device; skips without one."""
    try:
        return devices_of(Path("/"))[0]
    except Unavailable as error:
        pytest.skip(f"unavailable: {error}")


def runtime() -> Runtime:
    """The runtime of the first OpenCL device."""
    return open_runtime(a_device())


def launch(source: str, to: str, n: int) -> Launch:
    """`to` = 2 × `source` + 1."""
    return Launch(AFFINE, (Tensor(source), Tensor(to), np.uint32(n)), (-(-n // 64) * 64,), (64,), f"{source} to {to}")


def affine_plan(n: int, times: int = 3) -> Plan:
    """y = the affine map of x, `times` over, by way of the arena."""
    names = ["x", *(f"t{index}" for index in range(times - 1)), "y"]
    slots = {name: Slot("arena", 4 * n * index, "f32", (n,)) for index, name in enumerate(names[1:-1])}
    slots |= {"x": Slot("input", 0, "f32", (n,), "x"), "y": Slot("output", 0, "f32", (n,), "y")}
    steps = tuple(launch(before, after, n) for before, after in itertools.pairwise(names))
    return Plan(steps, slots, 4 * n * (times - 1), {"y": (n,)})


def right(x: Array, times: int = 3) -> Array:
    """What that gives."""
    return (x * 2**times + (2**times - 1)).astype(np.float32)


def executable(times: int = 3) -> OpenClExecutable:
    """A graph with one dynamic size and no weights."""

    def planned(shapes: Mapping[str, tuple[int, ...]], shared: frozenset[tuple[str, str]]) -> Plan:
        return affine_plan(shapes["x"][0], times)

    view = GraphView("g", memoryview(b""), (TensorSpec("x", "f32", ("n",)),), (TensorSpec("y", "f32", ("n",)),), {})
    return OpenClExecutable(Graph(view, planned), runtime())
