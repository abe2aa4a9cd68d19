# SPDX-License-Identifier: Apache-2.0
"""Kernel objects that serve one plan after the other."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.kernels import Kernels
from made_plans import AFFINE, executable, right, runtime


def test_kernels__are_taken_again() -> None:
    """One that was given back is the next one taken, for its own program and entry only."""
    here = runtime()
    kernels, program = Kernels(here.native), here.programs.handle(AFFINE, "g")
    first, second = (kernels.take(program, "affine", "g") for _ in range(2))
    assert first is not second
    kernels.give(first)
    assert kernels.take(program, "affine", "g") is first


def test_scalar__is_set_when_it_changes() -> None:
    """The driver is asked only for another value."""
    here = runtime()
    kernel = Kernels(here.native).take(here.programs.handle(AFFINE, "g"), "affine", "g")
    calls = []
    kernel._native = type("Counting", (), {"clSetKernelArg": lambda *given: calls.append(given[2]) or 0})  # type: ignore[assignment,func-returns-value]
    for value in (3, 3, 4):
        kernel.scalar(4, np.uint32(value).tobytes(), "g")
    assert len(calls) == 2


def test_plans__that_were_dropped_leave_their_kernels() -> None:
    """A shape that grows takes no more kernel objects than are in use at once."""
    call = executable(2).bind()
    for n in range(1, 60):
        x = np.full(n, 3, np.float32)
        call.set_input("x", x)
        call.run()
        assert np.array_equal(call.output("y"), right(x, 2))
    assert len(call._kernels._handles) <= 2 * 9
