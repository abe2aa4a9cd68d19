# SPDX-License-Identifier: Apache-2.0
"""Executables over a function: what they check beyond what the suite asks of every backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend

from dpfedge.backend.api import Executable, GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine, rows

BACKEND = ReferenceBackend()


@pytest.fixture
def loaded() -> Executable:
    """The affine graph with any number of rows."""
    return load(BACKEND, BACKEND.devices(Path("/"))[0], affine("n"))


def test_run__rank_and_names(loaded: Executable) -> None:
    """Another rank, another width, an unknown feed: each says what is allowed."""
    with pytest.raises(BackendError, match=r"graph affine: x: shape does not fit; found \(64,\); allowed \('n', 64\)"):
        loaded.run({"x": rows(1)[0]})
    with pytest.raises(BackendError, match="no such port; found q; allowed x"):
        loaded.run({"x": rows(1), "q": rows(1)})


def test_run__output_of_another_shape(loaded: Executable) -> None:
    """A fixed output must have the result's shape; nothing is broadcast into it."""
    call = loaded.bind()
    call.set_input("x", rows(1))
    call.set_output("y", np.zeros((2, 64), np.float32))

    with pytest.raises(BackendError, match=r"graph affine: y: the output has another shape"):
        call.run()
    call.set_output("y", None)
    call.run()
    assert call.output("y").shape == (1, 64)


def test_set_output__read_only(loaded: Executable) -> None:
    """Refused when it is bound, not when it is written."""
    with pytest.raises(BackendError, match="graph affine: y: an output needs memory that may be written"):
        loaded.bind().set_output("y", np.frombuffer(bytes(256), np.float32).reshape(1, 64))


def test_run__result_of_another_dtype() -> None:
    """A function that answers with doubles is found out, not converted."""
    port = TensorSpec("x", "f32", (1,))
    graph = GraphView("g", memoryview(b""), (port,), (TensorSpec("y", "f32", (1,)),), {})
    wrong = HostExecutable(graph, lambda feeds: [feeds["x"].astype(np.float64)])

    with pytest.raises(BackendError, match="graph g: y: the result has another dtype; found float64; allowed f32"):
        wrong.run({"x": np.ones(1, np.float32)})
