# SPDX-License-Identifier: Apache-2.0
"""ONNX's own tests on a backend: states and the table; all of them run in tests/conformance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dpfedge_reference import ReferenceBackend
from onnx import numpy_helper

from dpfedge.backend.api import Array, Budget, Device, GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.errors import BackendError, Unsupported
from dpfedge.testing import onnx_nodes
from dpfedge.testing.cases import Case, Op
from dpfedge.testing.onnx_nodes import Outcome, node_tests, table

BACKEND = ReferenceBackend()
DEVICE = BACKEND.devices(Path("/"))[0]


class Answering(ReferenceBackend):
    """Answers everything with what it was made with."""

    def __init__(self, answer: Array | BackendError) -> None:
        self.answer = answer

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        def compute(feeds: Mapping[str, Array]) -> Sequence[Array]:
            if isinstance(self.answer, BackendError):
                raise self.answer
            return [np.resize(self.answer, feeds["x"].shape)]

        return HostExecutable(graph, compute)


@pytest.fixture(autouse=True)
def _made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tests in the form of ONNX's, whose own take seconds to make."""
    x = np.array([-2.0, 3.0], np.float32)
    absolute = Case(Op("Abs", {"x": (2,)}), "f32").model([x])
    drawn = Case(
        Op("RandomUniformLike", {"x": (2,)}, attributes={"seed": 1.0, "dtype": 1, "low": 0.0, "high": 1.0}), "f32"
    ).model([x])
    tests = [
        SimpleNamespace(
            name=name, model=model, data_sets=[([numpy_helper.from_array(x)], [right])], rtol=1e-3, atol=1e-7
        )
        for name, model, right in (("test_abs", absolute, np.abs(x)), ("test_drawn", drawn, x))
    ]
    monkeypatch.setattr(onnx_nodes, "_tests", lambda: tests)


def test_node_tests__of_one_operator() -> None:
    """The reference is right, and an operator that draws cannot be wrong."""
    found = list(node_tests(BACKEND, DEVICE))

    assert [(one.op, one.test, one.state) for one in found] == [
        ("Abs", "test_abs", "right"), ("RandomUniformLike", "test_drawn", "any"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "state", "reason"),
    [
        (np.zeros(1, np.float32), "wrong", "output 0 is off by"),
        (BackendError("out of memory"), "refused", "out of memory"),
        (Unsupported("no such kernel"), "unsupported", "no such kernel"),
    ],
)
def test_node_tests__states(answer: Array | BackendError, state: str, reason: str) -> None:
    """A wrong number, an error, and one that is for good."""
    found = next(node_tests(Answering(answer), DEVICE))

    assert found.state == state
    assert reason in found.reason


def test_table__counts() -> None:
    """A line for each operator in order, and the sum."""
    outcomes = [Outcome("B", "t1", "right"), Outcome("A", "t2", "wrong"), Outcome("B", "t3", "right")]
    head, *rows = table(outcomes)

    assert head.split() == ["operator", "right", "wrong", "refused", "unsupported", "any"]
    assert [row.split() for row in rows] == [["A", "1"], ["B", "2"], ["all", "2", "1"]]
