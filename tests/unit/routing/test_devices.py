# SPDX-License-Identifier: Apache-2.0
"""Devices as instances: every backend's, and what one look at them says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend.api import Device, Health
from dpfedge.backend.registry import Registry
from dpfedge.errors import BackendError, Unavailable
from dpfedge.hardware.source.root import Root
from dpfedge.routing.devices import device_sources, look, pci_addresses, told_facts
from dpfedge.routing.health import Sample
from dpfedge.routing.instances import Instance


class Made:
    """A registry with one backend of two devices."""

    facts = ({"pci": "0000:01:00.0"}, {})

    def names(self) -> list[str]:
        """One."""
        return ["made"]

    def get(self, name: str) -> Any:
        """Itself."""
        return self

    def devices(self, root: Path) -> list[Device]:
        """Two."""
        kind: Any = "gpu.nvidia", "made", "sm_90", frozenset(), 1
        return [Device(f"made:{n}", "made", *kind, facts=facts) for n, facts in enumerate(self.facts)]

    def health(self, device: Device) -> Health:
        """Half busy."""
        return Health(0.5, 0.5, 60.0)


def test_sources__one_for_each_device(tmp_path: Path) -> None:
    """With the PCIe errors of those that have an address."""
    place = tmp_path / "sys/bus/pci/devices/0000:01:00.0/aer_dev_correctable"
    place.parent.mkdir(parents=True)
    place.write_text("TOTAL_ERR_COR 1\n")
    registry: Any = Made()
    sources = device_sources(registry, tmp_path)
    assert [source() for source in sources.values()] == [Sample(0.5, 0.5, 60.0)] * 2
    place.write_text("TOTAL_ERR_COR 4\n")
    assert [source().corrected_errors for source in sources.values()] == [3, 0]
    assert list(sources) == ["made:0", "made:1"]


@pytest.mark.parametrize(
    "error", [Unavailable("no driver is loaded"), BackendError("the driver does not answer"), KeyError("a defect")]
)
def test_sources__a_backend_without_its_driver_has_none(tmp_path: Path, error: Exception) -> None:
    """The others' devices are there all the same."""

    class Missing(Made):
        def devices(self, root: Path) -> list[Device]:
            raise error

    registry: Any = Missing()
    assert device_sources(registry, tmp_path) == {}
    assert told_facts(registry, tmp_path) == {}


def test_pci_addresses__the_device_and_its_bridge(tmp_path: Path) -> None:
    """Either end of a link may count an error; a device without an address has neither."""
    folder = tmp_path / "sys/bus/pci/devices"
    folder.mkdir(parents=True)
    (folder / "0000:01:00.0").symlink_to("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0")
    (folder / "0000:00:02.0").symlink_to("../../../devices/pci0000:00/0000:00:02.0")
    kind: Any = "made", "gpu.nvidia", "made", "sm_90", frozenset(), 1
    facts: list[dict[str, str]] = [{"pci": "0000:01:00.0"}, {"pci": "0000:00:02.0"}, {"pci": "0000:03:00.0"}, {}]
    found = [pci_addresses(Device("made:0", *kind, facts=one), Root(tmp_path)) for one in facts]
    assert found == [["0000:01:00.0", "0000:00:01.0"], ["0000:00:02.0"], ["0000:03:00.0"], []]


def test_told_facts__of_cards_whole_and_split(tmp_path: Path) -> None:
    """By address: the serial number before the id, memory of all parts; who is not on the bus is left out."""

    class Split(Made):
        facts: Any = (
            {"pci": "0000:01:00.0", "uuid": "GPU-1", "vbios": "96.0", "part": "gi1/ci0"},
            {"pci": "0000:01:00.0", "part": "gi2/ci0"},
            {"pci": "0000:02:00.0", "uuid": "GPU-2", "serial": 165},
            {},
        )

    registry: Any = Split()
    assert told_facts(registry, tmp_path) == {
        "0000:01:00.0": {"memory_bytes": 2, "firmware": "96.0", "serial": "GPU-1"},
        "0000:02:00.0": {"memory_bytes": 1, "serial": "165"},
    }


def test_told_facts__are_text_as_that_of_files(tmp_path: Path) -> None:
    """One line, printable, short: whatever a driver writes, it has a digest."""

    class Odd(Made):
        facts: Any = ({"pci": "0000:01:00.0", "vbios": "96\n\ud800\x1b", "serial": "7" * 300},)

    registry: Any = Odd()
    told = told_facts(registry, tmp_path)
    assert told == {"0000:01:00.0": {"memory_bytes": 1, "firmware": "96???", "serial": "7" * 200}}


def test_look__healthy_worn_out_and_silent() -> None:
    """A score each; what does not answer is out."""

    def silent() -> Sample:
        raise BackendError("the device does not answer")

    instances, scores = look({"a": lambda: Sample(0.5, 0.5), "b": lambda: Sample(1, 0.1), "c": silent})
    assert instances == [Instance("a"), Instance("b", healthy=False), Instance("c", healthy=False)]
    assert scores == {"a": 0.5, "b": 0.04, "c": 0.0}


def test_sources__of_this_machine() -> None:
    """The backends that are installed here answer."""
    instances, scores = look(device_sources(Registry.load()))
    assert all(0 <= scores[one.name] <= 1 for one in instances)
