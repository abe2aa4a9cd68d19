# SPDX-License-Identifier: Apache-2.0
"""Thermal zones: what is read, what is taken for asleep, and what is not believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.thermal import Zone, find_alerts, read_zone, read_zones, throttling

CLASS = "sys/class/thermal"


def zone(root: Path, number: int, name: str, milli: object, **trips: int) -> None:
    """Lay a zone with trip points of these kinds."""
    place = root / CLASS / f"thermal_zone{number}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "type").write_text(f"{name}\n")
    (place / "temp").write_text(f"{milli}\n")
    for index, (kind, temp) in enumerate(trips.items()):
        (place / f"trip_point_{index}_type").write_text(f"{kind.rstrip('_')}\n")
        (place / f"trip_point_{index}_temp").write_text(f"{temp}\n")


def read(root: Path, *wanted: str) -> dict[str, float | None]:
    """Zone → °C."""
    source = Root(root)
    return {found.name: read_zone(source, found) for found in read_zones(source, wanted)}


def test_zones__in_the_kernels_order_with_their_trip_points(tmp_path: Path) -> None:
    """Zone 10 is behind zone 2; the lowest passive trip point is where throttling may begin."""
    zone(tmp_path, 10, "gpu-thermal", 51500, active=60000, passive=99000, passive_=95000, critical=104500)
    zone(tmp_path, 2, "cpu-thermal", 48000)
    (tmp_path / CLASS / "cooling_device0").mkdir()

    assert read_zones(Root(tmp_path)) == (
        Zone(f"{CLASS}/thermal_zone2", "cpu-thermal"),
        Zone(f"{CLASS}/thermal_zone10", "gpu-thermal", throttle_c=95.0, critical_c=104.5),
    )
    assert read(tmp_path) == {"cpu-thermal": 48.0, "gpu-thermal": 51.5}
    assert read(tmp_path, "gpu-thermal", "tj-thermal") == {"gpu-thermal": 51.5}
    assert [found.number for found in read_zones(Root(tmp_path))] == ["2", "10"]


@pytest.mark.parametrize("milli", [-274000, -256000, 255000, 105000, "", "hot", "\x1b[31m"])
def test_zone__that_lies_is_not_believed(tmp_path: Path, milli: object) -> None:
    """No sensor of a machine that runs shows this; 105 °C is above its critical trip point."""
    zone(tmp_path, 0, "cpu-thermal", milli, critical=104500)

    assert read(tmp_path) == {"cpu-thermal": None}


def test_zone__of_constant_heat_is_left_out(tmp_path: Path) -> None:
    """A Jetson Nano's PMIC-Die reads 100 °C in the cold."""
    zone(tmp_path, 4, "PMIC-Die", 100000)
    zone(tmp_path, 0, "CPU-therm", 34000)

    assert read(tmp_path) == {"CPU-therm": 34.0}


@pytest.mark.parametrize("temp", [0, -274000, 200000])
def test_trip_point__that_is_switched_off_is_none(tmp_path: Path, temp: int) -> None:
    """Drivers show disabled trip points as 0 or −274 °C."""
    zone(tmp_path, 0, "cpu-thermal", 48000, passive=temp, critical=temp)

    [found] = read_zones(Root(tmp_path))
    assert (found.throttle_c, found.critical_c) == (None, None)


def test_zone__that_is_gated_is_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An Orin's idle cv zone answers EAGAIN: it stays a zone, without a temperature."""
    zone(tmp_path, 0, "cv0-thermal", 0)
    source = Root(tmp_path)
    [found] = read_zones(source)
    real = os.read

    def gated(descriptor: int, size: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/temp"):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return real(descriptor, size)

    monkeypatch.setattr(os, "read", gated)
    assert read_zone(source, found) is None


def test_zones__without_names_or_without_any(tmp_path: Path) -> None:
    """A zone without a type is called as its folder; no class, no zones."""
    assert read_zones(Root(tmp_path)) == ()
    zone(tmp_path, 3, "", 40000)

    assert read(tmp_path) == {"thermal_zone3": 40.0}


@pytest.mark.parametrize("state", [0, 1])
def test_throttling__is_told_by_alerts_and_not_by_the_fan(tmp_path: Path, state: int) -> None:
    """A running fan and a clock that is low are ordinary."""
    for number, name, now in ((0, "pwm-fan", 3), (1, "devfreq-gpu-gpc-0", 18), (2, "gpu-throttle-alert", state)):
        place = tmp_path / CLASS / f"cooling_device{number}"
        place.mkdir(parents=True)
        (place / "type").write_text(f"{name}\n")
        (place / "cur_state").write_text(f"{now}\n")
    root = Root(tmp_path)

    alerts = find_alerts(root)
    assert [alert.rpartition("/")[2] for alert in alerts] == ["cooling_device2"]
    assert throttling(root, alerts) is bool(state)
    assert find_alerts(Root(tmp_path / "none")) == ()
