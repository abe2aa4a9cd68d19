# SPDX-License-Identifier: Apache-2.0
"""Health from files: a Mali's load where drivers put it, processors since the last look."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dpfedge_opencl.health import HealthReader

from dpfedge.backend.api import Device

CPU = Device("opencl:0", "opencl", "cpu.x86_64", "a CPU", "x86-64-v3", frozenset(), 1 << 30)
MALI = replace(CPU, kind="gpu.arm", name="Mali-G610 r0p0", arch="mali-g610")


def _write(root: Path, place: str, text: str) -> None:
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cpu__share_that_was_not_idle_since_the_last_call(tmp_path: Path) -> None:
    """/proc/stat counts from the start; waiting for disks is idle, too."""
    reader = HealthReader(tmp_path)
    _write(tmp_path, "proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    _write(tmp_path, "proc/stat", "cpu 100 0 100 700 100 0 0 0 0 0\n")
    assert reader.read(CPU).utilisation == pytest.approx(0.2)
    _write(tmp_path, "proc/stat", "cpu 190 0 100 705 105 0 0 0 0 0\n")
    found = reader.read(CPU)
    assert (found.utilisation, found.free_memory) == (pytest.approx(0.9), 0.25)
    assert reader.read(CPU).utilisation == 0.0


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("sys/class/devfreq/fb000000.gpu/load", "37@800000000Hz\n"),
        ("sys/class/devfreq/fb000000.gpu-mali/load", "37@300000000Hz\n"),
        ("sys/class/misc/mali0/device/utilisation", "37\n"),
    ],
)
def test_mali__load_where_its_driver_tells(tmp_path: Path, place: str, text: str) -> None:
    """Rockchip's kernel and kbase; the hottest zone of the GPU."""
    _write(tmp_path, place, text)
    _write(tmp_path, "sys/class/devfreq/fdab0000.npu/load", "99@1000Hz")
    for number, (name, heat) in enumerate((("gpu-thermal", 61500), ("soc-thermal", 70000))):
        _write(tmp_path, f"sys/class/thermal/thermal_zone{number}/type", name)
        _write(tmp_path, f"sys/class/thermal/thermal_zone{number}/temp", str(heat))
    found = HealthReader(tmp_path).read(MALI)
    assert (found.utilisation, found.temperature_c) == (0.37, 61.5)


def test_health__of_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    """No file, no number: idle and without a temperature."""
    for device in (CPU, MALI):
        found = HealthReader(tmp_path).read(device)
        assert (found.utilisation, found.free_memory, found.temperature_c) == (0.0, 0.0, None)
