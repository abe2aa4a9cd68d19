# SPDX-License-Identifier: Apache-2.0
"""What both halves of the backend share: plain records."""

from __future__ import annotations

import dataclasses

import pytest
from dpfedge_opencl.plan import Kernel, Launch, Plan, Slot, Tensor


def test_plan__is_fixed_once_made() -> None:
    """Plans are kept by many bindings, so nobody may change one."""
    kernel = Kernel("f", "__kernel void f() {}")
    plan = Plan((Launch(kernel, (Tensor("x"),), (1,), None, "n"),), {"x": Slot("arena", 0, "f32", (2,))}, 128, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.arena_bytes = 1  # type: ignore[misc]
    assert (plan.then, plan.late, plan.data) == (None, None, b"")


def test_kernel__is_equal_by_its_text() -> None:
    """Programs are kept by kernel."""
    assert len({Kernel("f", "a"), Kernel("f", "a"), Kernel("f", "a", ("-DX",))}) == 2
