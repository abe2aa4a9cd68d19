# SPDX-License-Identifier: Apache-2.0
"""Health of Orin and Thor from their files, and NVML on Thor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dpfedge_jetson.devices import find_devices
from dpfedge_jetson.health import Watch

from dpfedge.backend.api import Health
from dpfedge.errors import Unavailable

MACHINES = Path(__file__).parents[3] / "fixtures/machines"
FILES = {
    "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 250 kB\n",
    "sys/devices/gpu.0/load": "420\n",
    "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n", "sys/class/thermal/thermal_zone1/temp": "55000\n",
    "sys/class/thermal/cooling_device3/type": "gpu-throttle-alert\n",
    "sys/class/thermal/cooling_device3/cur_state": "0\n",
    "sys/class/hwmon/hwmon1/name": "ina3221\n", "sys/class/hwmon/hwmon1/in1_label": "VDD_IN\n",
    "sys/class/hwmon/hwmon1/in1_input": "5000\n", "sys/class/hwmon/hwmon1/curr1_input": "1600\n",
}  # fmt: skip
THOR: Mapping[str, Any] = {
    "utilisation": 70, "temperature": 61, "reasons": 0x40, "corrected": 3, "uncorrected": None, "faults": None,
}  # fmt: skip


def watch(root: Path, told: Mapping[str, Any] | None = None, **files: str | None) -> Watch:
    """A machine with these files; NVML tells `told`."""
    for path, text in {**FILES, **files}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            (root / path).write_text(text)

    def ask(address: str) -> Mapping[str, Any]:
        assert address == "0000:01:00.0"
        assert told is not None, "NVML is a stub on Orin"
        return told

    return Watch(ask, root)


def test_health__of_orin(tmp_path: Path) -> None:
    """From files alone; NVML is not asked. A DLA has no load of its own that anybody tells."""
    gpu, dla, _ = find_devices(MACHINES / "orin-agx")

    assert watch(tmp_path).health(gpu) == Health(0.42, 0.25, 55.0, power_w=8.0)
    assert watch(tmp_path).health(dla) == Health(0.0, 0.25, 55.0, power_w=8.0)


def test_health__of_thor(tmp_path: Path) -> None:
    """NVML has the load, the reasons for throttling and the errors; the memory is the machine's."""
    [gpu] = find_devices(MACHINES / "thor")
    found = watch(tmp_path, THOR, **{"sys/devices/gpu.0/load": None}).health(gpu)
    assert found == Health(0.7, 0.25, 55.0, True, 3, 0, 0, 8.0)
    gated = {"sys/devices/gpu.0/load": None, "sys/class/thermal/thermal_zone1/temp": ""}
    assert watch(tmp_path / "gated", {**THOR, "reasons": 1}, **gated).health(gpu).temperature_c == 61.0


def test_health__without_a_memory_figure(tmp_path: Path) -> None:
    """Nothing told is not enough memory."""
    with pytest.raises(Unavailable, match="jetson:0: no file tells how much memory is free"):
        watch(tmp_path, **{"proc/meminfo": None}).health(find_devices(MACHINES / "orin-agx")[0])


def test_power__is_asked_once_a_second(tmp_path: Path) -> None:
    """The monitors sit on a slow bus, and health is asked every 50 ms."""
    looking = watch(tmp_path)
    first = looking.power()
    (tmp_path / "sys/class/hwmon/hwmon1/curr1_input").write_text("9999\n")
    assert looking.power() is first
    looking._asked -= 1.0
    assert looking.power().watts == pytest.approx(49.995)
