# SPDX-License-Identifier: Apache-2.0
"""What is run before programs are kept; that they serve is `test_loading.py`."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.seal import samples, seal
from made_plans import a_device

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


def test_seal__nothing_to_run() -> None:
    """Then nothing is sealed."""
    assert seal(_view("n"), a_device(), Budget()) is None
