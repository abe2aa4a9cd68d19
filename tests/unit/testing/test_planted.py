# SPDX-License-Identifier: Apache-2.0
"""The suite finds faults that right answers hide: memory beside an output, runs after close, files, other bindings."""

from __future__ import annotations

import os

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.session import CpuBinding, CpuExecutable
from dpfedge_reference import ReferenceBackend
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from planted import Faulty, judged, suite

from dpfedge.backend.api import Array, Budget, Device, GraphView, LoweredGraph, LowerRequest
from dpfedge.backend.host import HostBinding, HostExecutable
from dpfedge.errors import RunCancelled


def test_load_unload__finds_files_that_stay_open() -> None:
    """One for each load, which no memory shows."""
    kept: list[int] = []

    class Holding(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            kept.append(os.open("/dev/null", os.O_RDONLY))
            return super().load(graph, device, budget)

    made, device = suite(Holding())
    with pytest.raises(AssertionError, match="files or threads stay behind"):
        made.test_load_unload__returns_memory(device, judged())
    for file in kept:
        os.close(file)


def test_load_unload__finds_a_binding_that_outlives_its_executable() -> None:
    """A run after close, through what was bound before it."""

    class Undead(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded, again = super().load(graph, device, budget), super().load(graph, device, budget)
            loaded.bind = again.bind  # type: ignore[method-assign]
            return loaded

    made, device = suite(Undead())
    with pytest.raises(AssertionError, match="a run after close"):
        made.test_load_unload__returns_memory(device, judged())


def _next_slot(binding: HostBinding) -> None:
    y = binding._fixed["y"]
    np.lib.stride_tricks.as_strided(y, (y.size + 64,), (4,))[-64:] = 0


def test_arena__finds_a_write_into_the_next_slot() -> None:
    """Behind the output there is another message's memory."""
    made, device = suite(Faulty(_next_slot))

    with pytest.raises(AssertionError, match="another slot was written"):
        made.test_arena__is_used_in_place(device, judged())


def test_run__finds_memory_that_is_not_let_go() -> None:
    """An output that is the caller's no more is written all the same."""

    class Clinging(HostBinding):
        def set_output(self, name: str, array: Array | None) -> None:
            if array is not None:
                super().set_output(name, array)

    class Never(ReferenceBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
            loaded = super().load(graph, device, budget)
            loaded.bind = lambda: Clinging(loaded)  # type: ignore[method-assign]
            return loaded

    made, device = suite(Never())
    with pytest.raises(AssertionError, match="no longer an output's"):
        made.test_run__allocates(device, judged())


def test_cancel__finds_one_that_ends_all_bindings() -> None:
    """Whoever shares the executable goes on."""
    herd: list[CpuBinding] = []

    class Together(CpuBinding):
        def cancel(self) -> None:
            for one in herd:
                CpuBinding.cancel(one)

    class Herd(CpuBackend):
        def load(self, graph: GraphView, device: Device, budget: Budget) -> CpuExecutable:
            loaded = super().load(graph, device, budget)

            def bind() -> CpuBinding:
                herd.append(Together(loaded))
                return herd[-1]

            loaded.bind = bind  # type: ignore[method-assign]
            return loaded

    made, device = suite(Herd())
    with pytest.raises(RunCancelled):
        made.test_cancel__ends_a_run(device, judged())


def test_damaged__finds_an_error_of_the_library_s_own() -> None:
    """What is no ONNX graph is refused by a BackendError, as all else."""

    class Parsing(ReferenceBackend):
        def lower(self, request: LowerRequest) -> LoweredGraph:
            onnx.ModelProto.FromString(request.onnx)
            return super().lower(request)

    made, device = suite(Parsing())
    with pytest.raises(DecodeError):
        made.test_damaged__code_is_refused(device, judged())
