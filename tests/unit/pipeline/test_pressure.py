# SPDX-License-Identifier: Apache-2.0
"""Pressure, read from recorded and made machines below a folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import UsageError
from dpfedge.hardware.board import load_board
from dpfedge.hardware.source.root import Root
from dpfedge.pipeline.pressure import VARIABLE, Pressure, Sensors, sample_pressure, sensor_root

MACHINES = Path(__file__).parents[2] / "fixtures/machines"


@dataclass
class Thermal:
    """A board as far as it matters here."""

    thermal: dict[str, Any] = field(default_factory=dict)


def lay(root: Path, files: dict[str, object]) -> Path:
    """Write these files below the root."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"{content}\n")
    return root


def zone(number: int, name: str, milli: int, passive: int = 0) -> dict[str, object]:
    """One thermal zone."""
    place = f"sys/class/thermal/thermal_zone{number}"
    trip = {f"{place}/trip_point_0_type": "passive", f"{place}/trip_point_0_temp": passive} if passive else {}
    return {f"{place}/type": name, f"{place}/temp": milli, **trip}


@pytest.mark.parametrize("name", sorted(path.name for path in MACHINES.iterdir() if path.is_dir()))
def test_sample__of_a_recorded_machine(name: str) -> None:
    """Recordings hold memory but no sensors: what nobody tells is None."""
    found = sample_pressure(MACHINES / name)

    assert found == Pressure(memory_free=found.memory_free)
    assert found.memory_free is not None
    assert 0 < found.memory_free <= 1


def test_sample__of_an_orin(tmp_path: Path) -> None:
    """Its board names the zones and where they throttle; the camera's sensor is none of them."""
    files = {
        **zone(0, "cpu-thermal", 71500), **zone(1, "gpu-thermal", 84000), **zone(7, "camera-thermal", 95000),
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 250 kB",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=2 NAME=30W >", "var/lib/nvpmodel/status": "pmode:0002",
    }  # fmt: skip
    sensors = Sensors(Root(lay(tmp_path, files)), load_board("orin"))

    assert sensors.sample() == Pressure(84.0, 0.25, "30W", 15.0, "gpu-thermal")
    assert sensors.names == {"temperature", "headroom", "memory_free", "power_mode"}
    assert sensors.power_modes == ("30W",)
    lay(tmp_path, zone(1, "gpu-thermal", 99500))
    assert sensors.sample().headroom_c == -0.5


def test_sample__takes_the_zone_with_the_least_left(tmp_path: Path) -> None:
    """A zone that throttles at 75 °C is nearer to it at 70 than one that throttles at 110 at 90."""
    lay(tmp_path, {**zone(0, "cpu", 70000, passive=75000), **zone(1, "gpu", 90000, passive=110000)})

    assert sample_pressure(tmp_path) == Pressure(70.0, None, None, 5.0, "cpu")


def test_sample__of_the_hottest_where_nobody_says_when_it_throttles(tmp_path: Path) -> None:
    """Then there is a temperature, but no headroom."""
    lay(tmp_path, {**zone(0, "cpu", 70000), **zone(1, "gpu", 90000)})
    sensors = Sensors(Root(tmp_path))

    assert sensors.sample() == Pressure(90.0, None, None, None, "gpu")
    assert sensors.names == {"temperature"}


def test_sensors__a_board_whose_zones_are_missing_here(tmp_path: Path) -> None:
    """A newer kernel calls them otherwise: every zone counts, and the board's own limit."""
    lay(tmp_path, zone(0, "cpu_thermal", 60000))

    found = Sensors(Root(tmp_path), Thermal({"zones": ["cpu-thermal"], "throttle": "99C"})).sample()

    assert (found.temperature_c, found.headroom_c) == (60.0, 39.0)


def test_sensors__all_asleep(tmp_path: Path) -> None:
    """A zone that tells nothing now is a sensor all the same."""
    lay(tmp_path, {"sys/class/thermal/thermal_zone0/type": "gpu-thermal"})
    sensors = Sensors(Root(tmp_path))

    assert sensors.sample().temperature_c is None
    assert sensors.names == {"temperature"}


def test_figures__have_units() -> None:
    """What events and `status` show."""
    assert Pressure(84.0, 0.123456, "30W", 15.0, "gpu").figures() == {
        "temperature_c": 84.0, "headroom_c": 15.0, "zone": "gpu", "memory_free": 0.1235, "power_mode": "30W",
    }  # fmt: skip


def test_root__is_this_machine_or_what_the_variable_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is not there is a mistake, not a machine without sensors."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert sensor_root().live
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert sensor_root().path == str(tmp_path)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none"))

    with pytest.raises(UsageError, match=r"\$DPFEDGE_SENSORS: no such folder"):
        sensor_root()
