# SPDX-License-Identifier: Apache-2.0
"""Sensors and error counts of an AMD GPU, and what is not believed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dpfedge.hardware.source.amdsensors import AmdState, find_amd, read_amd_state
from dpfedge.hardware.source.root import Root

ADDRESS = "0000:05:00.0"
FILES = {
    "gpu_busy_percent": "37\n",
    "mem_info_vram_total": "206141652992\n",
    "mem_info_vram_used": "1073741824\n",
    "hwmon/hwmon7/power1_average": "142000000\n",
    "hwmon/hwmon7/temp1_label": "edge\n", "hwmon/hwmon7/temp1_input": "41000\n",
    "hwmon/hwmon7/temp2_label": "junction\n", "hwmon/hwmon7/temp2_input": "52000\n",
    "hwmon/hwmon7/temp2_crit": "100000\n",
    "hwmon/hwmon7/temp3_label": "mem\n", "hwmon/hwmon7/temp3_input": "47000\n",
    "ras/umc_err_count": "ue: 1\nce: 12\nde: 3\n", "ras/gfx_err_count": "ue: 0\nce: 2\n", "ras/features": "0x101\n",
}  # fmt: skip


def state(root: Path, **files: str | None) -> AmdState:
    """What is read of `FILES` with these in place of their own; None: no such file."""
    for name, text in {**FILES, **files}.items():
        path = root / "sys/bus/pci/devices" / ADDRESS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(text)
    source = Root(root)
    return read_amd_state(source, find_amd(source, ADDRESS))


def test_state__of_everything(tmp_path: Path) -> None:
    """The junction is the sensor nearest its limit; errors are summed over the blocks, deferred ones are neither."""
    assert state(tmp_path) == AmdState(0.37, 206141652992, 1073741824, 142.0, 52.0, 100.0, 14, 1)


def test_state__of_a_part_that_tells_power_of_the_moment(tmp_path: Path) -> None:
    """MI300X has `power1_input` in place of the average."""
    files = {"hwmon/hwmon7/power1_average": None, "hwmon/hwmon7/power1_input": "750000000\n"}
    assert state(tmp_path, **files).watts == 750.0


@pytest.mark.parametrize(
    ("busy", "heat"), [("N/A\n", "N/A\n"), ("", ""), ("-1\n", "-274000\n"), ("101\n", "255000\n"), ("nan", "nan")]
)
def test_state__that_lies_is_none(tmp_path: Path, busy: str, heat: str) -> None:
    """Not 0, and no crash."""
    found = state(tmp_path, **{"gpu_busy_percent": busy, "hwmon/hwmon7/temp2_input": heat})

    assert (found.utilisation, found.temperature_c) == (None, None)


def test_state__of_nothing(tmp_path: Path) -> None:
    """A GPU without its driver has no files."""
    assert state(tmp_path, **dict.fromkeys(FILES)) == AmdState()


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EPERM])
def test_state__while_it_is_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Every read fails; nothing is known, and the reasons are kept."""
    state(tmp_path)
    root = Root(tmp_path)
    places = find_amd(root, ADDRESS)

    def reset(descriptor: int, size: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "read", reset)
    assert read_amd_state(root, places) == AmdState(critical_c=100.0)
    assert set(root.unreadable.values()) == {os.strerror(number)}
