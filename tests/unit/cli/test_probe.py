# SPDX-License-Identifier: Apache-2.0
"""`dpfedge probe`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.cli import main

Record = Callable[[str], Path]


def test_probe__text_of_a_board(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """The lines a person looks for."""
    assert main(["probe", "--sysroot", str(record("rk3588"))]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "cpu        4× Cortex-A76 + 4× Cortex-A55",
        "arch       aarch64, armv8.2-a",
        "features   atomics dotprod fp16 int8_dot neon",
        "cores      8 logical, 8 physical",
        "cluster    Cortex-A76: cores 4-7, capacity 1024",
        "cluster    Cortex-A55: cores 0-3, capacity 414",
        "cache      L1 data 64 KiB (Cortex-A76)",
        "cache      L2 unified 512 KiB (Cortex-A76)",
        "cache      L3 unified 3 MiB, shared by 8 cores (Cortex-A76)",
        "memory     15.4 GiB, 11.6 GiB available, pages of unknown",
        "cgroup     none",
        "kernel     6.1.75-vendor-rk35xx",
        "model      Radxa ROCK 5B",
        "compatible radxa,rock-5b rockchip,rk3588",
        "gpu        rockchip,rk3588 gpu.arm Mali-G610, mali-g610, shares the memory, no driver",
    ]


def test_probe__text_of_a_container_on_a_server(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """Limits, firmware names and GPUs are shown."""
    assert main(["probe", "--sysroot", str(record("h100"))]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert "cores      8 logical, 4 physical" in lines
    assert "cgroup     version 2, 3.5 CPUs, 64.0 GiB" in lines
    assert "dmi        vendor Supermicro, product SYS-821GE-TNHR" in lines
    assert "pci        0000:18:00.0 10de:2330 NVIDIA H100 80GB HBM3" in lines


def test_probe__notes(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """What was hidden is said."""
    assert main(["probe", "--sysroot", str(record("no-sys"))]) == 0

    assert "note       /sys/devices/system/cpu is hidden; cores are counted from the" in capsys.readouterr().out


def test_probe__records_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Folder and tar file at once; the list of what was written is shown."""
    assert main(["probe", "--record", str(tmp_path / "a car"), "--tar", str(tmp_path / "a car.tar")]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("recorded ")
    assert "  proc/meminfo" in lines
    assert (tmp_path / "a car/proc/meminfo").exists()
    assert main(["probe", "--sysroot", str(tmp_path / "a car.tar"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sysroot"] == str(tmp_path / "a car.tar")


def test_probe__records_as_json(record: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where, how much and which files, of a recording of a recording too; a full folder is refused."""
    command = ["probe", "--sysroot", str(record("rk3588")), "--record", str(tmp_path / "again"), "--json"]
    assert main(command) == 0

    data = json.loads(capsys.readouterr().out)
    assert data["recorded"] == [str(tmp_path / "again")]
    assert "proc/device-tree/compatible" in data["files"]
    assert main(command) == 2
    assert "the folder is not empty" in capsys.readouterr().err


def test_probe__names_a_sysroot_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty answer would look like an empty machine."""
    assert main(["probe", "--sysroot", str(tmp_path / "none")]) == 2
    assert "there is no such folder or recording" in capsys.readouterr().err


def test_probe__json(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    """One object with the fields of Machine."""
    assert main(["probe", "--json", "--sysroot", str(record("orin"))]) == 0

    data = json.loads(capsys.readouterr().out)
    assert (data["cpu"]["level"], data["page_bytes"]) == ("armv8.2-a", 4096)
    assert data["device_tree"]["compatible"][-1] == "nvidia,tegra234"
