# SPDX-License-Identifier: Apache-2.0
"""The seventeen fields of a device, of recorded machines; and that FINGERPRINT.md names them in this order."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from dpfedge.hardware.fingerprint import FIELDS, DevicePrint, read_prints
from dpfedge.hardware.source.root import Root

HERE = Path(__file__).parents[3]
MACHINES = HERE / "tests/fixtures/machines"


@pytest.fixture
def h100(tmp_path: Path) -> Path:
    """The recorded machine, and of its first GPU what a recording leaves out."""
    root = tmp_path / "h100"
    shutil.copytree(MACHINES / "h100", root)
    gpu = root / "sys/bus/pci/devices/0000:18:00.0"
    files = {
        "subsystem_vendor": "0x10de", "subsystem_device": "0x16c1", "revision": "0xa1", "current_link_width": "8",
        "max_link_width": "16", "current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32 GT/s",
        "aer_dev_correctable": "RxErr 3\nTOTAL_ERR_COR 3", "aer_dev_nonfatal": "TOTAL_ERR_NONFATAL 1",
        "aer_dev_fatal": "TOTAL_ERR_FATAL 2",
    }  # fmt: skip
    for name, text in files.items():
        (gpu / name).write_text(text + "\n")
    told = root / "proc/driver/nvidia/gpus/0000:18:00.0/information"
    told.write_text(told.read_text() + "Video BIOS: \t 96.00.61.00.01\nGPU UUID: \t GPU-5a5a\n")
    return root


def test_fields__seventeen_as_the_page_says() -> None:
    """In the order that the digest needs."""
    page = (HERE / "dpfedge/hardware/FINGERPRINT.md").read_text()
    assert tuple(re.findall(r"^\| [0-9]+ \| `([a-z_]+)` \|", page, re.MULTILINE)) == FIELDS
    assert len(FIELDS) == 17


def test_prints__of_a_card_on_the_bus(h100: Path) -> None:
    """All that files tell of it; the other card has no link files, which is no error."""
    cpu, first, second = read_prints(Root(h100))
    assert cpu.kind == "cpu.x86_64"
    assert cpu.memory_bytes
    assert not cpu.link_width
    assert asdict(first) == {
        "kind": "gpu.nvidia", "name": "NVIDIA H100 80GB HBM3", "vendor": "10de", "device": "2330",
        "subsystem": "10de:16c1", "revision": "00a1", "arch": "sm_90", "memory_bytes": None,
        "driver": first.driver, "firmware": "96.00.61.00.01", "link_width": 8, "link_width_max": 16,
        "link_speed": 16000, "link_speed_max": 32000, "aer_corrected": 3, "aer_uncorrected": 3, "serial": "GPU-5a5a",
    }  # fmt: skip
    assert first.driver
    assert first.driver.startswith("nvidia ")
    assert (second.link_width, second.link_speed, second.aer_corrected, second.serial) == (None, None, None, None)


def test_prints__what_drivers_tell_where_files_do_not(h100: Path) -> None:
    """The card's own serial number before the driver's id of it; firmware and memory only where they are missing."""
    told = {
        "0000:18:00.0": {"serial": "1654", "firmware": "other", "memory_bytes": 80 << 30},
        "0000:2a:00.0": {"firmware": "96.00.61.00.02", "memory_bytes": 0}, "0000:ff:00.0": {"serial": "no such"},
    }  # fmt: skip
    _, first, second = read_prints(Root(h100), told)
    assert (first.serial, first.firmware, first.memory_bytes) == ("1654", "96.00.61.00.01", 80 << 30)
    assert (second.serial, second.firmware, second.memory_bytes) == (None, "96.00.61.00.02", None)


@pytest.mark.parametrize(
    ("text", "speed"), [("2.5 GT/s", 2500), ("Unknown", None), ("", None), ("64.0 GT/s PCIe", 64000)]
)
def test_prints__speeds_of_every_kernel(h100: Path, text: str, speed: int | None) -> None:
    """Whole MT/s; what is unknown is not there."""
    (h100 / "sys/bus/pci/devices/0000:18:00.0/current_link_speed").write_text(text)
    assert read_prints(Root(h100))[1].link_speed == speed


def test_prints__inside_the_chip(tmp_path: Path) -> None:
    """The board's serial number; no link."""
    root = tmp_path / "orin"
    shutil.copytree(MACHINES / "orin-agx", root)
    (root / "proc/device-tree/serial-number").write_bytes(b"1420921\0")
    cpu, gpu = read_prints(Root(root))[:2]
    assert (cpu.serial, gpu.serial, gpu.kind, gpu.link_width) == ("1420921", "1420921", "gpu.nvidia", None)
    assert cpu.vendor == "0x41"
    assert cpu.device == "0xd42"
    assert gpu.device == "nvidia,p3737-0000+p3701-0005"


@pytest.mark.parametrize("machine", sorted(place.name for place in MACHINES.iterdir() if place.is_dir()))
def test_prints__every_recorded_machine(machine: str) -> None:
    """A CPU first; values are texts, whole numbers or nothing, and the same each time."""
    prints = read_prints(Root(MACHINES / machine))
    assert prints == read_prints(Root(MACHINES / machine))
    assert prints[0].kind.startswith("cpu.")
    assert all(one.kind for one in prints)
    values = [value for one in prints for value in asdict(one).values()]
    assert all(value is None or type(value) in (str, int) for value in values)
    assert prints[0].name
    assert prints[0].driver


def test_prints__of_nothing_at_all(tmp_path: Path) -> None:
    """An empty root is a CPU of which nothing is known."""
    (one,) = read_prints(Root(tmp_path))
    assert isinstance(one, DevicePrint)
    assert one.memory_bytes is None
    assert one.serial is None


@pytest.mark.parametrize("text", ["-5", "10000", "9" * 5000, "\u202e", ""])
def test_prints__ids_have_four_digits(h100: Path, text: str) -> None:
    """What a damaged recording says instead is nothing."""
    place = h100 / "sys/bus/pci/devices/0000:18:00.0"
    (place / "revision").write_text(text)
    (place / "subsystem_device").write_text(text)
    first = read_prints(Root(h100))[1]
    assert (first.revision, first.subsystem) == (None, None)
