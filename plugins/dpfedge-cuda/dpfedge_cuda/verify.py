# SPDX-License-Identifier: Apache-2.0
"""What proving the CUDA backend on a machine with a GPU needs to know, and what it looks at beside the common checks.

`dpfedge doctor --backend cuda --verify` runs the suite for backends with these lists, a pipeline, a bench, and then
`checks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpfedge.backend.api import Backend, Budget, Device
from dpfedge.testing.calls import same, slots
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine, chain, decaying, right_affine, rows
from dpfedge_cuda.backend import CudaBackend
from dpfedge_cuda.executable import CudaBinding, CudaExecutable

__all__ = ["EXPECTED", "UNSUPPORTED", "checks"]

UNSUPPORTED: Mapping[str, str] = {
    "op/DynamicQuantizeLinear/*": "the CUDA provider quantises nothing by the row",
    "op/MatMulInteger/*": "the CUDA provider multiplies s8 by s8 only",
    "op/Pad/i64": "the CUDA provider pads floats and booleans only",
}
"""Tests of the suite → why the operator will never run."""
EXPECTED: Mapping[str, str] = {
    "cache": "the CUDA provider attends in 16-bit floats: right to 5e-4, and the suite wants 1e-4 there",
}
"""Tests of the suite → what is known to be off."""
_RUNS = 8


def checks(backend: Backend, device: Device) -> Iterator[tuple[str, str]]:
    """(what was looked at, what was found) of what only a GPU shows; AssertionError where it is not so."""
    assert isinstance(backend, CudaBackend)
    yield "what NVML tells", ", ".join(f"{name} {value}" for name, value in backend.nvml(device).items())
    yield "pinned link memory", _pinned(backend, device)
    yield "memory that stays on the device", _resident(backend, device)
    yield "urgent and patient streams", _streams(backend, device)


def _pinned(backend: Backend, device: Device) -> str:
    """A link's slots are read and written in place, as often as they come round, also by a captured graph."""
    executable = load(backend, device, affine(2))
    assert isinstance(executable, CudaExecutable)
    call = executable.bind()
    with slots(3) as places:
        x, y, z = places
        call.set_input("x", x)
        call.set_output("y", y)
        call.set_output("z", z)
        for seed in range(_RUNS):
            x[...], y[...], z[...] = rows(2, seed=seed), np.nan, np.nan
            call.run()
            same({"y": y, "z": z}, right_affine(x))
        assert call.in_place(), "a port is not in the device's reach"
        assert call.copies == 0, f"{call.copies} copies"
        found = f"{_RUNS} runs without a copy, {'captured' if executable.captures else 'not captured'} as a CUDA graph"
        del call, x, y, z
    executable.close()
    return found


def _resident(backend: Backend, device: Device) -> str:
    """A linked output feeds the next run without passing through the host."""
    call = load(backend, device, decaying()).bind()
    assert isinstance(call, CudaBinding)
    call.set_input("x", np.ones(4, np.float32))
    call.set_input("state", np.zeros(4, np.float32))
    call.link("next", "state")
    call.run()
    before = call.copies
    for _ in range(_RUNS):
        call.run()
    assert call.copies - before == _RUNS, "only x, which lies on the heap, is copied"
    assert np.array_equal(call.output("next"), np.full(4, 2 - 0.5**_RUNS, np.float32))
    return f"{_RUNS} runs, the state was never copied"


def _streams(backend: Backend, device: Device) -> str:
    """Both levels give the same bytes."""
    found = {load(backend, device, chain(4, 64), Budget(urgency=u)).run({"x": rows(64)})["y"].tobytes() for u in (0, 7)}
    assert len(found) == 1, "the levels differ"
    return "both levels give the same bytes"
