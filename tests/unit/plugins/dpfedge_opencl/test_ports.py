# SPDX-License-Identifier: Apache-2.0
"""Ports: what is refused, and when a plan or an argument has to change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dpfedge_opencl.ports import Ports
from made_plans import runtime

from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec


@pytest.fixture
def ports() -> Ports:
    """Two inputs and an output."""
    inputs = (TensorSpec("x", "f32", ("n", 4)), TensorSpec("cache", "f32", (8,)))
    return Ports(inputs, (TensorSpec("y", "f32", (8,)),), runtime().memory, "graph g")


def test_ports__refuse_what_does_not_fit(ports: Ports) -> None:
    """Name, dtype, holes and sizes, each named with the graph."""
    x = np.zeros((3, 4), np.float32)
    wrong: tuple[Callable[[], object], ...] = (
        lambda: ports.set_input("q", x),
        lambda: ports.set_input("x", x.astype(np.float64)),
        lambda: ports.set_input("x", x[:, ::2]),
        lambda: ports.set_input("x", np.zeros((3, 5), np.float32)),
        lambda: ports.set_input("x", np.zeros(4, np.float32)),
        lambda: ports.set_output("q", x),
        lambda: ports.set_output("y", np.frombuffer(bytes(32), np.float32)),
        lambda: ports.shapes(),
    )
    for act in wrong:
        with pytest.raises(BackendError, match="graph g"):
            act()


def test_shared__is_a_cache_written_in_place(ports: Ports) -> None:
    """An output in an input's memory is told by its place; unbinding it makes another plan."""
    cache = np.zeros(8, np.float32)
    ports.set_input("x", np.zeros((1, 4), np.float32))
    ports.set_input("cache", cache)
    assert ports.shared() == frozenset()
    ports.set_output("y", cache)
    assert ports.shared() == {("y", "cache")}
    ports.same_plan = True
    ports.set_input("x", np.ones((1, 4), np.float32))
    assert ports.same_plan
    ports.set_input("cache", cache.copy())
    assert not ports.same_plan
    ports.set_output("y", None)
    assert ports.shared() == frozenset()


def test_changes__count_only_what_moved(ports: Ports) -> None:
    """The same array again is nothing."""
    x = np.zeros((1, 4), np.float32)
    ports.set_input("x", x)
    before = ports.changes
    ports.set_input("x", x)
    assert ports.changes == before
    ports.set_input("x", x.copy())
    assert ports.changes == before + 1


def test_make__keeps_memory_of_the_same_shape(ports: Ports) -> None:
    """Outputs of ours stay where they are, unless they are to be the caller's."""
    ports.make({"y": (8,)}, fresh=False)
    first = ports.written("y").array
    ports.make({"y": (8,)}, fresh=False)
    assert ports.written("y").array is first
    ports.make({"y": (8,)}, fresh=True)
    assert ports.written("y").array is not first


def test_carry__a_bound_output_stays_bound(ports: Ports) -> None:
    """The caller's memory is read where it is."""
    y = np.zeros(8, np.float32)
    ports.set_output("y", y)
    ports.carry("y", "cache")
    assert ports.read["cache"].array is y
    ports.forget()
    assert ports.read == {}
