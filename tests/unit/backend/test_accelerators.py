# SPDX-License-Identifier: Apache-2.0
"""The door through which plugins see GPUs."""

from __future__ import annotations

from pathlib import Path

from dpfedge.backend.accelerators import accelerators

MACHINES = Path(__file__).parents[2] / "fixtures/machines"


def test_accelerators__of_a_recorded_machine() -> None:
    """A plugin gets the same facts as `dpfedge probe`, for a machine that is not here."""
    [gpu] = accelerators(MACHINES / "rk3588")

    assert (gpu.kind, gpu.arch, gpu.drivers) == ("gpu.arm", "mali-g610", {"mali": "24.0"})


def test_accelerators__of_this_machine() -> None:
    """Whatever is here, each has a kind and a place."""
    assert all(gpu.kind and gpu.place for gpu in accelerators())
