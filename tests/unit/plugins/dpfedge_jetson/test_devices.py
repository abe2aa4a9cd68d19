# SPDX-License-Identifier: Apache-2.0
"""Devices of recorded Jetsons, whatever stands first in their device tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from dpfedge_jetson import devices as module
from dpfedge_jetson.devices import find_devices

from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.errors import Unavailable

MACHINES = Path(__file__).parents[3] / "fixtures/machines"
ORIN = [("jetson:0", "gpu.nvidia", "sm_87"), *((f"jetson:dla{core}", "dla.nvidia", "nvdla2") for core in range(2))]


@pytest.mark.parametrize(
    ("machine", "devices", "boardname"),
    [
        ("orin-agx", ORIN, "AGX Orin 64GB"),
        ("orin-nx", ORIN, "Orin NX 16GB super"),
        ("orin-nano", ORIN[:1], "Orin Nano developer kit super"),
        ("thor", [("jetson:0", "gpu.nvidia", "sm_110")], "Thor T5000"),
    ],
)
def test_devices__of_a_jetson(machine: str, devices: list[tuple[str, str, str]], boardname: str) -> None:
    """GPU and DLAs share the machine's memory; the module is told by its part number."""
    found = find_devices(MACHINES / machine)

    assert [(one.id, one.kind, one.arch) for one in found] == devices
    assert {one.facts["module"] for one in found} == {boardname}
    assert {one.memory_bytes for one in found} == {cpu_facts(MACHINES / machine).memory_bytes}
    assert all(one.unified_memory and "unified_memory" in one.features for one in found)
    assert all("l4t" in one.drivers for one in found)
    assert [one.facts.get("core") for one in found][1:] == list(range(len(found) - 1))


def test_devices__of_thor_are_on_the_bus() -> None:
    """Its GPU is a PCI function, Orin's is none."""
    assert find_devices(MACHINES / "thor")[0].facts["pci"] == "0000:01:00.0"
    assert "pci" not in find_devices(MACHINES / "orin-agx")[0].facts


@pytest.mark.parametrize("machine", ["h100", "mi300x", "rk3588", "imx95"])
def test_devices__of_another_machine(machine: str) -> None:
    """None: a card in a slot is backend cuda's."""
    assert find_devices(MACHINES / machine) == []


def test_nodes__that_are_missing_or_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine they are looked at before any library is."""
    with pytest.raises(Unavailable, match=r"backend jetson: the GPU's driver is not here; found none of nvmap"):
        module._check_nodes(tmp_path)
    (tmp_path / "nvmap").touch()
    module._check_nodes(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(Unavailable, match=r"may not be opened by this user; found .*/nvmap; join its group"):
        module._check_nodes(tmp_path)
