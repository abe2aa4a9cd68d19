# SPDX-License-Identifier: Apache-2.0
"""Power rails of the boards in the facts, and of boards that lie."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dpfedge.hardware.source.rails import find_rails, read_rail, total_watts
from dpfedge.hardware.source.root import Root


def monitor(root: Path, number: int, chip: str, channels: Mapping[str, tuple[object, object]], first: int = 1) -> None:
    """An INA3221 with volts in mV and amperes in mA of each channel."""
    place = root / f"sys/class/hwmon/hwmon{number}"
    place.mkdir(parents=True)
    (place / "name").write_text(f"{chip}\n")
    for index, (name, (volts, amperes)) in enumerate(channels.items(), first):
        (place / f"in{index}_label").write_text(f"{name}\n")
        (place / f"in{index}_input").write_text(f"{volts}\n")
        (place / f"curr{index}_input").write_text(f"{amperes}\n")


def read(root: Path, total: str = "") -> tuple[dict[str, float | None], float | None]:
    """Rail → watts, and the whole."""
    source = Root(root)
    rails = find_rails(source)
    return {rail.name: read_rail(source, rail) for rail in rails}, total_watts(source, rails, total)


def test_rails__of_an_agx_orin_add_up(tmp_path: Path) -> None:
    """Two chips; what is wired to nothing and the sum of shunts are no rails [linux: tegra234-p3701.dtsi]."""
    first = {"VDD_GPU_SOC": (19_000, 400), "VDD_CPU_CV": (19_000, 200), "VIN_SYS_5V0": (5_000, 1_000)}
    monitor(tmp_path, 3, "ina3221", first)
    (tmp_path / "sys/class/hwmon/hwmon3/in7_label").write_text("sum of shunt voltages\n")
    monitor(tmp_path, 4, "ina3221", {"VDDQ_VDD2_1V8AO": (19_000, 100), "NC": (0, 0)})
    monitor(tmp_path, 5, "tmp451", {"VDD_X": (1, 1)})

    rails, whole = read(tmp_path)
    assert rails == pytest.approx({"VDD_GPU_SOC": 7.6, "VDD_CPU_CV": 3.8, "VIN_SYS_5V0": 5.0, "VDDQ_VDD2_1V8AO": 1.9})
    assert whole == pytest.approx(18.3)


def test_rails__of_an_orin_nano_have_an_input(tmp_path: Path) -> None:
    """VDD_IN measures the whole module; the others are parts of it."""
    monitor(tmp_path, 1, "ina3221", {"VDD_IN": (5_000, 1_600), "VDD_CPU_GPU_CV": (5_000, 400), "VDD_SOC": (5_000, 300)})

    assert read(tmp_path)[1] == pytest.approx(8.0)
    assert read(tmp_path, "VDD_SOC")[1] == pytest.approx(1.5)


def test_rails__of_thor_are_on_two_chips(tmp_path: Path) -> None:
    """VIN, the board's input, is an INA238's, which tells µW; it counts, and not the sum."""
    monitor(tmp_path, 1, "ina3221", {"VDD_GPU": (12_000, 1_223), "VDD_CPU_SOC_MSS": (12_000, 800)})
    monitor(tmp_path, 2, "ina238", {"VIN": (20_000, 1)})
    (tmp_path / "sys/class/hwmon/hwmon2/power1_input").write_text("52000000\n")

    rails, whole = read(tmp_path)
    assert (rails["VIN"], whole) == (52.0, 52.0)
    assert rails["VDD_GPU"] == pytest.approx(14.676)


def test_rails__of_jetpack_4(tmp_path: Path) -> None:
    """Industrial I/O instead of hwmon, in mW."""
    place = tmp_path / "sys/bus/iio/devices/iio:device0"
    place.mkdir(parents=True)
    (place / "rail_name_0").write_text("POM_5V_IN\n")
    (place / "in_power0_input").write_text("2150\n")
    (place / "rail_name_1").write_text("NC\n")

    assert read(tmp_path) == ({"POM_5V_IN": pytest.approx(2.15)}, pytest.approx(2.15))


@pytest.mark.parametrize("volts", ["", "N/A", "\x1b[31m"])
def test_rail__that_tells_nothing_is_not_zero(tmp_path: Path, volts: str) -> None:
    """Nor is a sum without it the whole."""
    monitor(tmp_path, 1, "ina3221", {"VDD_GPU_SOC": (19_000, 400), "VDD_CPU_CV": (volts, 200)})

    rails, whole = read(tmp_path)
    assert rails == {"VDD_GPU_SOC": pytest.approx(7.6), "VDD_CPU_CV": None}
    assert whole is None


def test_rail__of_a_gated_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bus answers with an error now and then."""
    monitor(tmp_path, 1, "ina3221", {"VDD_IN": (5_000, 1_600)})
    root = Root(tmp_path)
    [rail] = find_rails(root)

    def busy(descriptor: int, size: int) -> bytes:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "read", busy)
    assert read_rail(root, rail) is None


def test_rails__of_a_machine_without_monitors(tmp_path: Path) -> None:
    """No rails, no watts."""
    assert read(tmp_path) == ({}, None)
