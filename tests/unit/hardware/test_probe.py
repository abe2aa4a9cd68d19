# SPDX-License-Identifier: Apache-2.0
"""Whole machines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.probe import probe

Record = Callable[[str], Path]


def test_probe__orin(record: Record) -> None:
    """A Jetson tells device tree, kernel, page size and memory."""
    machine = probe(record("orin"))

    assert machine.compatible == ("nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234")
    assert machine.device_tree is not None
    assert machine.device_tree.model == "NVIDIA Jetson AGX Orin Developer Kit"
    assert (machine.kernel, machine.page_bytes, machine.usable_bytes) == ("5.15.148-tegra", 4096, 64349640 * 1024)
    assert machine.notes == ()


def test_probe__h100(record: Record) -> None:
    """A server tells its GPUs, DMI name and what its container may use."""
    machine = probe(record("h100"))

    assert [device.id for device in machine.displays] == ["10de:2330"] * 2
    assert machine.dmi == {"vendor": "Supermicro", "product": "SYS-821GE-TNHR"}
    assert (machine.usable_cores, machine.usable_bytes) == (3.5, 64 << 30)


@pytest.mark.parametrize(("machine", "page"), [("imx95", 16384), ("foreign", 65536), ("x86", 0)])
def test_probe__page_size_is_told_by_the_files(record: Record, machine: str, page: int) -> None:
    """16 and 64 KiB pages are seen; what is not recorded is unknown."""
    assert probe(record(machine)).page_bytes == page


@pytest.mark.parametrize(
    ("machine", "line"),
    [
        (
            "rk3588",
            "device tree radxa,rock-5b rockchip,rk3588, aarch64, CPU 4× Cortex-A76 + 4× Cortex-A55, "
            "no PCI display device",
        ),
        (
            "mi300x",
            "no device tree, x86_64, CPU AMD EPYC 9654 96-Core Processor, AMD Instinct MI300X (1002:74a1)",
        ),
        ("empty", "no device tree, unknown, CPU 1× cpu, no PCI display device"),
    ],
)
def test_describe__names_what_tells_machines_apart(record: Record, machine: str, line: str) -> None:
    """One line for the message of a wrong board."""
    assert probe(record(machine)).describe() == line


def test_probe__names_unreadable_files(record: Record) -> None:
    """A file that gives no number where one is needed is named."""
    root = record("orin")
    (root / "sys/devices/system/cpu/cpu0").mkdir()
    (root / "sys/devices/system/cpu/cpu0/cpu_capacity").write_text("fast\n")

    assert probe(root).notes == ("/sys/devices/system/cpu/cpu0/cpu_capacity was not used: no number: 'fast'",)


def test_probe__empty_root(record: Record) -> None:
    """Nothing there is no error: each thing that is missing is named."""
    notes = probe(record("empty")).notes

    assert len(notes) == 3
    assert notes[-1] == "/proc/meminfo does not tell the memory"


def test_probe__this_machine() -> None:
    """The live machine has memory, a kernel and a real page size."""
    machine = probe()

    assert machine.memory.total > 0
    assert machine.kernel == os.uname().release
    assert machine.page_bytes == os.sysconf("SC_PAGE_SIZE")


def test_probe__starts_nothing_and_imports_nothing_heavy() -> None:
    """Probing opens no socket, starts no process and needs no numeric library."""
    code = (
        "import sys\n"
        "banned = ('socket.', 'subprocess.', 'os.exec', 'os.fork', 'os.posix_spawn', 'os.system', 'ctypes.')\n"
        "def hook(name, args):\n"
        "    if name.startswith(banned): raise SystemExit(f'audit event {name}')\n"
        "sys.addaudithook(hook)\n"
        "from dpfedge.hardware.probe import probe\n"
        "probe()\n"
        "heavy = {'numpy', 'onnxruntime', 'yaml', 'subprocess', 'socket'} & set(sys.modules)\n"
        "raise SystemExit(f'imported {heavy}' if heavy else 0)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
