# SPDX-License-Identifier: Apache-2.0
"""Display controllers and accelerators on the PCI bus: the bus folder in, ids and names out.

It needs no driver and says nothing about whether one is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass

__all__ = ["NAMES", "PciDevice", "read_pci", "upstream"]

_DEVICES = "sys/bus/pci/devices"
_ID_MAX = 0xFFFF
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CLASSES = (0x03, 0x12)  # display controllers; processing accelerators, which is what AMD Instinct reports

NAMES: Mapping[str, str] = {
    # NVIDIA/open-gpu-kernel-modules: README.md (595.45.04)
    "10de:20b0": "NVIDIA A100-SXM4-40GB", "10de:20b2": "NVIDIA A100-SXM4-80GB", "10de:20b5": "NVIDIA A100 80GB PCIe",
    "10de:20f1": "NVIDIA A100-PCIE-40GB", "10de:2236": "NVIDIA A10", "10de:27b8": "NVIDIA L4",
    "10de:26b9": "NVIDIA L40S",
    "10de:2330": "NVIDIA H100 80GB HBM3", "10de:2331": "NVIDIA H100 PCIe", "10de:2321": "NVIDIA H100 NVL",
    "10de:2339": "NVIDIA H100", "10de:2335": "NVIDIA H200", "10de:233b": "NVIDIA H200 NVL", "10de:2342": "NVIDIA GH200",
    "10de:2348": "NVIDIA GH200 144G HBM3e", "10de:2324": "NVIDIA H800", "10de:2322": "NVIDIA H800 PCIe",
    "10de:2329": "NVIDIA H20", "10de:2901": "NVIDIA B200", "10de:2941": "NVIDIA GB200", "10de:3182": "NVIDIA B300",
    "10de:31c2": "NVIDIA GB300", "10de:2e12": "NVIDIA GB10",
    # pciutils/pciids: pci.ids 2026.08.22
    "10de:2b00": "NVIDIA Thor", "10de:2336": "NVIDIA H100", "10de:2337": "NVIDIA H100 SXM5 64GB",
    "10de:2338": "NVIDIA H100 SXM5 96GB", "10de:233d": "NVIDIA H100 96GB", "1002:740f": "AMD Instinct MI210",
    "1002:740c": "AMD Instinct MI250", "1002:7408": "AMD Instinct MI250X", "1002:74a0": "AMD Instinct MI300A",
    "1002:74a1": "AMD Instinct MI300X", "1002:74b5": "AMD Instinct MI300X VF", "1002:74a9": "AMD Instinct MI300X HF",
    "1002:74bd": "AMD Instinct MI300X HF", "1002:74a2": "AMD Instinct MI308X", "1002:74a5": "AMD Instinct MI325X",
    "1002:74b9": "AMD Instinct MI325X VF", "1002:75a0": "AMD Instinct MI350X", "1002:75a3": "AMD Instinct MI355X",
    "1002:75a8": "AMD Instinct MI350P",
}  # fmt: skip
"""`vendor:device` in hexadecimal → name, for the parts that boards name."""


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One display controller or accelerator: `address` on the bus, `id` as `vendor:device` in hexadecimal."""

    address: str
    id: str
    name: str


def read_pci(root: Root) -> tuple[PciDevice, ...]:
    """Every display controller and accelerator, by address; NVSwitches and audio functions are neither."""
    return tuple(device for address in root.names(_DEVICES) if (device := _device(root, address)) is not None)


def upstream(root: Root, address: str) -> str | None:
    """The address of the bridge above the function at `address`; None at the root of a bus, and in recordings."""
    _, _, parent = (root.link(f"{_DEVICES}/{address}") or "").rpartition("/")[0].rpartition("/")
    return parent if _ADDRESS.fullmatch(parent) else None


def _device(root: Root, address: str) -> PciDevice | None:
    place = f"{_DEVICES}/{address}"
    kind = root.number(f"{place}/class", 16)
    if kind is None or kind >> 16 not in _CLASSES:
        return None
    vendor, device = root.number(f"{place}/vendor", 16), root.number(f"{place}/device", 16)
    if vendor is None or device is None or not (0 <= vendor <= _ID_MAX and 0 <= device <= _ID_MAX):
        return None
    id = f"{vendor:04x}:{device:04x}"
    return PciDevice(address, id, NAMES.get(id, f"display device {id}"))
