# SPDX-License-Identifier: Apache-2.0
"""Display controllers and accelerators on the PCI bus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.source.pci import NAMES, PciDevice, read_pci, upstream
from dpfedge.hardware.source.root import Root

Record = Callable[[str], Path]


def test_pci__gpus_without_switches(record: Record) -> None:
    """Both GPUs are found; the NVSwitch of the same vendor and the ISA bridge are not GPUs."""
    name = "NVIDIA H100 80GB HBM3"

    assert read_pci(Root(record("h100"))) == (
        PciDevice("0000:18:00.0", "10de:2330", name),
        PciDevice("0000:2a:00.0", "10de:2330", name),
    )


@pytest.mark.parametrize(("machine", "id"), [("mi300x", "1002:74a1"), ("thor", "10de:2b00")])
def test_pci__accelerator_class_and_integrated_gpu(record: Record, machine: str, id: str) -> None:
    """AMD's accelerator class and Thor's integrated GPU count."""
    assert [device.id for device in read_pci(Root(record(machine)))] == [id]


def test_pci__unknown_and_broken(tmp_path: Path) -> None:
    """An unknown id keeps its number; a function without ids is left out."""
    for address, files in {
        "0000:00:02.0": {"class": "0x030000", "vendor": "0x8086", "device": "0x46a6"},
        "0000:00:03.0": {"class": "0x030000", "vendor": "broken"},
        "0000:00:04.0": {},
        "0000:00:05.0": {"class": "0x030000", "vendor": "0x10de", "device": "0x12345"},
        "0000:00:06.0": {"class": "0x030000", "vendor": "-1", "device": "0x1"},
    }.items():
        place = tmp_path / "sys/bus/pci/devices" / address
        place.mkdir(parents=True)
        for name, text in files.items():
            (place / name).write_text(text)

    assert read_pci(Root(tmp_path)) == (PciDevice("0000:00:02.0", "8086:46a6", "display device 8086:46a6"),)


def test_names__are_keyed_by_lower_case_ids() -> None:
    """Ids are written the way they are read."""
    assert all(key == key.lower() and len(key) == 9 and key[4] == ":" for key in NAMES)


def test_upstream__the_bridge_above(tmp_path: Path) -> None:
    """By the link of sysfs; a function at the root of its bus, and a recording, have none."""
    folder = tmp_path / "sys/bus/pci/devices"
    folder.mkdir(parents=True)
    (folder / "0000:01:00.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0")
    (folder / "0000:00:01.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0")
    (folder / "0000:02:00.0").mkdir()
    names = ("0000:01:00.0", "0000:00:01.0", "0000:02:00.0", "0000:09:00.0")
    found = [upstream(Root(tmp_path), name) for name in names]
    assert found == ["0000:00:01.0", None, None, None]
