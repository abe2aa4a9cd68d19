# SPDX-License-Identifier: Apache-2.0
"""What is run before programs are kept; that they serve is `test_loading.py`."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.executable import Graph, OpenClExecutable
from dpfedge_opencl.plan import Plan
from dpfedge_opencl.seal import _run_in_place, samples, seal
from made_plans import a_device, affine_plan, runtime

from dpfedge.backend.api import Budget, GraphView
from dpfedge.tensors import TensorSpec


def _view(*dims: int | str, **more: object) -> GraphView:
    return GraphView("g", memoryview(b""), (TensorSpec("x", "f32", dims),), (), {}, **more)  # type: ignore[arg-type]


def test_samples__of_the_package_or_zeros() -> None:
    """A graph of fixed sizes needs no sample; one of other sizes cannot be run without."""
    given = [{"x": np.ones(3, np.float32)}]
    assert samples(_view("n", samples=given)) is given
    assert samples(_view("n")) == ()
    (zeros,) = samples(_view(2, 3))
    assert zeros["x"].shape == (2, 3)


def test_run_in_place__outputs_that_are_like_inputs() -> None:
    """A cache of fixed size is written where it is read; the caller's sample stays as it was."""
    shared = []

    def planned(shapes: object, pairs: frozenset[tuple[str, str]]) -> Plan:
        shared.append(pairs)
        return affine_plan(8, 1)

    ports = (TensorSpec("x", "f32", (8,)),), (TensorSpec("y", "f32", (8,)),)
    made = OpenClExecutable(Graph(GraphView("g", memoryview(b""), *ports, {}), planned), runtime())
    x = np.ones(8, np.float32)
    _run_in_place(made, {"x": x})
    assert shared == [{("y", "x")}]
    assert (x == 1).all()


def test_seal__nothing_to_run() -> None:
    """Then nothing is sealed."""
    assert seal(_view("n"), a_device(), Budget()) is None
