# SPDX-License-Identifier: Apache-2.0
"""Sensors as backends see them: boards with everything, with something and with nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from dpfedge.backend import sensors as module
from dpfedge.backend.sensors import (
    AmdSensors,
    AmdState,
    GroupSensors,
    GroupState,
    TegraSensors,
    TegraState,
    free_memory,
)

ORIN = {
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\n",
    "sys/devices/gpu.0/load": "420\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone0/temp": "70000\n",
    "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n", "sys/class/thermal/thermal_zone1/temp": "55000\n",
    "sys/class/thermal/thermal_zone1/trip_point_0_type": "passive\n",
    "sys/class/thermal/thermal_zone1/trip_point_0_temp": "99000\n",
    "sys/class/thermal/thermal_zone2/type": "tj-thermal\n", "sys/class/thermal/thermal_zone2/temp": "71000\n",
    "sys/class/thermal/cooling_device3/type": "gpu-throttle-alert\n",
    "sys/class/thermal/cooling_device3/cur_state": "0\n",
    "sys/class/hwmon/hwmon1/name": "ina3221\n",
    "sys/class/hwmon/hwmon1/in1_label": "VDD_IN\n", "sys/class/hwmon/hwmon1/in1_input": "5000\n",
    "sys/class/hwmon/hwmon1/curr1_input": "1600\n",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n",
    "var/lib/nvpmodel/status": "pmode:0002 fmode:quiet\n",
}  # fmt: skip


def lay(root: Path, **files: str) -> TegraSensors:
    """An Orin with these files in place of its own."""
    for path, text in {**ORIN, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return TegraSensors(root)


def test_tegra__everything(tmp_path: Path) -> None:
    """Of the GPU's own zone, not of the hottest."""
    sensors = lay(tmp_path)

    assert sensors.sample() == TegraState(utilisation=0.42, memory_free=0.25, temperature_c=55.0)
    assert sensors.power() == TegraState(watts=8.0, rails={"VDD_IN": 8.0}, power_mode="MAXN_SUPER")


@pytest.mark.parametrize(
    "files",
    [
        {"sys/class/thermal/cooling_device3/cur_state": "1\n"},
        {"sys/class/thermal/thermal_zone1/temp": "99500\n"},
    ],
)
def test_tegra__throttled(tmp_path: Path, files: dict[str, str]) -> None:
    """The kernel's alert, or a zone that is at its trip point."""
    assert lay(tmp_path, **files).sample().throttled


def test_tegra__gated_gpu_leaves_the_chips_own_zone(tmp_path: Path) -> None:
    """The GPU's zone cannot be read while the GPU sleeps."""
    assert lay(tmp_path, **{"sys/class/thermal/thermal_zone1/temp": ""}).sample().temperature_c == 71.0


def test_sensors__of_a_machine_without_any(tmp_path: Path) -> None:
    """Everything is unknown, and nothing is 0."""
    sensors = TegraSensors(tmp_path)

    assert (sensors.sample(), sensors.power()) == (TegraState(), TegraState())
    assert AmdSensors("0000:05:00.0", tmp_path).sample() == AmdState()


def test_free_memory__of_the_machine(tmp_path: Path) -> None:
    """Its share; None where no file tells."""
    assert free_memory(tmp_path) is None
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    assert free_memory(tmp_path) == 0.25


def test_groups__of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second: time used of half a core's, and what is left of the memory; no use is known before the second."""
    box, now = tmp_path / "sys/fs/cgroup", 100.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    box.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/\n")
    files = {"cgroup.controllers": "cpu memory", "cpu.max": "50000 100000", "cpu.stat": "usage_usec 1000000"}
    files |= {"memory.max": "1000", "memory.current": "800", "memory.stat": "inactive_file 100"}
    for name, text in files.items():
        (box / name).write_text(text)
    groups = GroupSensors(tmp_path)

    assert groups.sample() == GroupState(None, pytest.approx(0.3))
    now = 100.5
    (box / "cpu.stat").write_text("usage_usec 1400000")
    (box / "memory.current").write_text("500")
    assert groups.sample() == GroupState(None, pytest.approx(0.3))
    now = 102.0
    assert groups.sample() == GroupState(pytest.approx(0.4), pytest.approx(0.6))
    now = 103.0
    (box / "cpu.stat").write_text("usage_usec 1")  # another group by the same name
    (box / "memory.max").write_text("max")
    assert groups.sample() == GroupState(0.0, None)
    now = 104.0
    (box / "cpu.stat").write_text("usage_usec 9000000")
    assert groups.sample() == GroupState(1.0, None)
    now = 105.0
    (box / "cpu.max").write_text("max 100000")
    assert groups.sample() == GroupState()
