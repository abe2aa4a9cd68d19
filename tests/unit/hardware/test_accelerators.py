# SPDX-License-Identifier: Apache-2.0
"""Accelerators of whole machines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.probe import probe

Record = Callable[[str], Path]
MACHINES = Path(__file__).parents[2] / "fixtures/machines"

_ORIN = {"l4t": "36.4.3", "jetpack": "6.2"}
EXPECTED = {
    "h100": [("gpu.nvidia", "sm_90", {"nvidia": "570.86.15"}, 0)] * 2,
    "h100-mig": [
        ("gpu.nvidia", "sm_90", {"nvidia": "570.86.15"}, 7),
        ("gpu.nvidia", "sm_90", {"nvidia": "570.86.15"}, 1),
    ],
    "mi300x": [("gpu.amd", "gfx942", {"amdgpu": "6.10.5"}, 0)] * 2,
    "mi300x-cpx": [
        ("gpu.amd", "gfx942", {"amdgpu": "6.10.5"}, 8),
        ("gpu.amd", "gfx942", {"amdgpu": "6.10.5"}, 0),
    ],
    "mi325x": [("gpu.amd", "gfx942", {"amdgpu": "6.12.12"}, 0)],
    "mi250": [("gpu.amd", "gfx90a", {"amdgpu": "6.3.6"}, 0)] * 2,
    "orin-agx": [("gpu.nvidia", "sm_87", _ORIN, 0), *[("dla.nvidia", "nvdla2", _ORIN, 0)] * 2],
    "orin-nx": [("gpu.nvidia", "sm_87", _ORIN, 0), *[("dla.nvidia", "nvdla2", _ORIN, 0)] * 2],
    "orin-nano": [("gpu.nvidia", "sm_87", {"l4t": "36.4.4", "jetpack": "6.2.1"}, 0)],
    "thor": [("gpu.nvidia", "sm_110", {"nvidia": "580.00", "l4t": "38.4.0", "jetpack": "7.1"}, 0)],
    "rk3588": [("gpu.arm", "mali-g610", {"mali": "24.0"}, 0)],
    "imx95": [("gpu.arm", "mali-g310", {"panthor": "6.12.20"}, 0)],
}


@pytest.mark.parametrize("name", sorted(path.name for path in MACHINES.iterdir() if path.is_dir()))
def test_accelerators__of_each_recorded_machine(name: str) -> None:
    """Kind, architecture, drivers and the number of parts; nothing about the files needs a note."""
    machine = probe(MACHINES / name)

    found = [(gpu.kind, gpu.arch, dict(gpu.drivers), len(gpu.parts)) for gpu in machine.accelerators]
    assert found == EXPECTED[name]
    assert machine.notes == ()


def test_accelerators__card_in_a_tegra_keeps_its_own_drivers(tmp_path: Path) -> None:
    """A server GPU in an Orin's slot is a second GPU; only the one inside has the L4T release."""
    files = {
        "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\0nvidia,tegra234\0",
        "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 1\n",
        "sys/bus/pci/devices/0005:01:00.0/class": "0x030200\n",
        "sys/bus/pci/devices/0005:01:00.0/vendor": "0x10de\n",
        "sys/bus/pci/devices/0005:01:00.0/device": "0x2236\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    found = [(gpu.place, gpu.arch, dict(gpu.drivers)) for gpu in probe(tmp_path).accelerators]
    assert found == [
        ("0005:01:00.0", "sm_86", {}),
        ("tegra234", "sm_87", _ORIN),
        ("nvdla0", "nvdla2", _ORIN),
        ("nvdla1", "nvdla2", _ORIN),
    ]


def test_accelerators__of_a_plain_machine(record: Record) -> None:
    """A PC without a GPU has none."""
    assert probe(record("x86")).accelerators == ()
