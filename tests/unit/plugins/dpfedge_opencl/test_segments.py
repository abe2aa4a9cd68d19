# SPDX-License-Identifier: Apache-2.0
"""CPU calls: values bound where they lie, outputs of unknown size into the caller's array or the plugin's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from dpfedge_opencl.plan import CpuCall, Plan, Slot
from dpfedge_opencl.ports import Port
from dpfedge_opencl.segments import Segments
from made_plans import runtime

from dpfedge.backend.api import GraphView
from dpfedge.backend.host import HostExecutable
from dpfedge.tensors import TensorSpec

INNER = GraphView("g#0", memoryview(b""), (TensorSpec("in", "f32", ("n",)),), (TensorSpec("out", "f32", ("m",)),), {})


def test_run__in_place() -> None:
    """Input and output are parts of one arena."""
    arena = np.arange(16, dtype=np.float32).view(np.uint8)
    segments = Segments([HostExecutable(INNER, lambda feeds: [feeds["in"] * 10])])
    slots = {"a": Slot("arena", 8, "f32", (3,)), "b": Slot("arena", 32, "f32", (3,))}
    segments.run(CpuCall(0, ("a",), ("b",)), Plan((), slots, 64, {}), lambda home, of: arena, {})
    assert list(arena.view(np.float32)[8:11]) == [20, 30, 40]
    assert segments.made == {}


def test_run__size_that_nobody_knew() -> None:
    """The plugin's memory, or the caller's array where the output is a port that was bound."""
    segments = Segments([HostExecutable(INNER, lambda feeds: [feeds["in"][:2].copy()])])
    plan = Plan((), {"a": Slot("input", 0, "f32", (4,), "a")}, 0, {})
    x, y = np.arange(4, dtype=np.float32), np.zeros(2, np.float32)
    call = CpuCall(0, ("a",), ("b",))
    segments.run(call, plan, lambda home, of: x, {})
    assert list(segments.made["b"]) == [0, 1]
    segments.run(call, plan, lambda home, of: x + 5, {"b": Port(y, runtime().memory.wrap(y, write=True), 0)})
    assert list(y) == [5, 6]


class _Stoppable(HostExecutable):
    """A fake_executable whose bindings can be cancelled."""

    def bind(self) -> Any:
        call: Any = super().bind()
        call.cancelled = False
        call.cancel = lambda: setattr(call, "cancelled", True)
        call.rearm = lambda: setattr(call, "cancelled", False)
        return call


def test_cancel__reaches_the_plugin() -> None:
    """The call in progress is the plugin's to end."""
    segments = Segments([_Stoppable(INNER, lambda feeds: [feeds["in"]])])
    slots = {"a": Slot("input", 0, "f32", (2,), "a")}
    segments.run(CpuCall(0, ("a",), ("b",)), Plan((), slots, 0, {}), lambda home, of: np.zeros(2, np.float32), {})
    (binding,) = segments._bindings.values()
    segments.cancel()
    assert binding.cancelled  # type: ignore[attr-defined]
    segments.rearm()
    assert not binding.cancelled  # type: ignore[attr-defined]
