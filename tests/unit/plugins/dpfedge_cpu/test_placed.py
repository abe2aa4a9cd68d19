# SPDX-License-Identifier: Apache-2.0
"""Bindings of a device, with a fake device whose memory is this process's: what is in place, copied and resident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.placed import PlacedExecutable
from dpfedge_cpu.provider import Provider, Providers, open_on

from dpfedge.backend.api import Array, Budget
from dpfedge.errors import BackendError, RunCancelled
from dpfedge.testing.loading import lowered, view
from dpfedge.testing.models import affine, decaying, right_affine, rows

CPU = Providers("fake", [Provider("CPUExecutionProvider")], "")


class FakeHold:
    """Its addresses are the host's."""

    def at(self, address: int) -> int:
        """The same."""
        return address


class FakeMemory:
    """Reaches the arrays in `reached` only."""

    kind, number = "cpu", 0

    def __init__(self) -> None:
        self.reached: list[Array] = []
        self.waits = 0

    def hold(self, array: Array) -> FakeHold | None:
        """None where onnxruntime must copy."""
        return FakeHold() if any(array is one for one in self.reached) else None

    def wait(self) -> None:
        """Counted."""
        self.waits += 1


@pytest.fixture
def memory() -> FakeMemory:
    """A fake device's."""
    return FakeMemory()


def load(
    model: object, memory: FakeMemory, admit: Callable[[Callable[[], bool]], None] | None = None
) -> PlacedExecutable:
    """The model on the fake device."""
    (device,) = CpuBackend().devices(Path("/"))
    graph = view(CpuBackend(), lowered(CpuBackend(), device, model), "graph")
    return PlacedExecutable(graph, open_on(graph, Budget(), CPU)[0], memory, admit=admit)


def test_run__in_place_and_copied(memory: FakeMemory) -> None:
    """What the device reaches is not counted; the rest is, once for each run."""
    call, x, y, z = (
        load(affine(2), memory).bind(),
        rows(2),
        np.empty((2, 16), np.float32),
        np.empty((2, 16), np.float32),
    )
    wanted = right_affine(x)
    y, z = np.empty_like(wanted["y"]), np.empty_like(wanted["z"])
    memory.reached += [x, y]
    call.set_input("x", x)
    call.set_output("y", y)
    call.set_output("z", z)
    assert not call.in_place()
    for _ in range(2):
        call.run()
    np.testing.assert_allclose(y, wanted["y"], rtol=1e-4)
    assert (call.copies, memory.waits) == (2, 2)

    memory.reached.append(z)
    call.set_output("z", z)
    call.run()
    assert call.in_place()
    assert call.copies == 2

    call.set_output("y", None)
    call.run()
    assert not call.in_place()
    assert call.copies == 3
    np.testing.assert_allclose(call.output("y"), wanted["y"], rtol=1e-4)


def test_link__stays_on_the_device(memory: FakeMemory) -> None:
    """Only asking for it makes a copy, and only one."""
    call = load(decaying(), memory).bind()
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    memory.reached += [ones, zeros]
    call.set_input("x", ones)
    call.link("next", "state")
    call.set_input("state", zeros)
    for _ in range(3):
        call.run()
    assert call.copies == 1, "what begins the chain"
    for _ in range(2):
        np.testing.assert_array_equal(call.output("next"), np.full(4, 1.75, np.float32))
    assert call.copies == 2


def test_run__waits_to_be_admitted(memory: FakeMemory) -> None:
    """Work that is not admitted does not run; a cancel ends the waiting."""
    asked: list[bool] = []

    def admit(stopped: Callable[[], bool]) -> None:
        asked.append(stopped())
        if len(asked) > 2:
            raise BackendError("memory is low", where="fake")

    graph = load(affine(2), memory, admit)
    call = graph.bind()
    call.set_input("x", rows(2))
    call.run()
    call.cancel()
    with pytest.raises(RunCancelled):
        call.run()
    assert asked == [False, True]
    call.rearm()
    with pytest.raises(BackendError, match="memory is low"):
        call.run()
    with pytest.raises(BackendError, match="memory is low"):
        graph.run({"x": rows(2)})


def test_run__allocated(memory: FakeMemory) -> None:
    """A plain run returns arrays of the host."""
    found = load(affine(2), memory).run({"x": rows(2)})
    np.testing.assert_allclose(found["y"], right_affine(rows(2))["y"], rtol=1e-4)
