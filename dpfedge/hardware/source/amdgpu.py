# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs: the PCI bus and the KFD topology in, accelerators with their code target and memory out.

Feature suffixes of a target (`sramecc+`, `xnack-`) stand in no file; they are left open. ROCm is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.pci import PciDevice
from dpfedge.hardware.source.root import Root, label, whole

__all__ = ["gfx_name", "read_amd"]

_NODES = "sys/class/kfd/kfd/topology/nodes"
_VENDOR = "1002:"
_WANTED = ("gfx_target_version", "location_id", "domain")


def read_amd(root: Root, displays: Sequence[PciDevice], kernel: str | None) -> tuple[Accelerator, ...]:
    """Every AMD display controller or accelerator; `kernel` is the version of a driver that came with the kernel."""
    devices = [device for device in displays if device.id.startswith(_VENDOR)]
    if not devices:
        return ()
    nodes = _nodes(root)
    version = root.text("sys/module/amdgpu/version") or (kernel if nodes else None)
    return tuple(_gpu(root, device, nodes.get(device.address, []), version) for device in devices)


def _nodes(root: Root) -> dict[str, list[Mapping[str, int]]]:
    """PCI address → its nodes: one, or one for each partition."""
    places: dict[str, list[Mapping[str, int]]] = {}
    for number in root.names(_NODES):
        fields = _properties(root.text(f"{_NODES}/{number}/properties") or "")
        if fields.get("gfx_target_version"):  # CPUs are nodes too, with 0
            where = fields.get("location_id", 0)
            address = f"{fields.get('domain', 0):04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 31:02x}.{where & 7}"
            places.setdefault(address, []).append(fields)
    return places


def _properties(text: str) -> dict[str, int]:
    rows = (line.partition(" ") for line in text.splitlines())
    numbers = ((key, whole(value.strip())) for key, _, value in rows if key in _WANTED)
    return {key: number for key, number in numbers if number is not None}


def _gpu(root: Root, device: PciDevice, nodes: Sequence[Mapping[str, int]], version: str | None) -> Accelerator:
    place = f"sys/bus/pci/devices/{device.address}"
    return Accelerator(
        kind="gpu.amd",
        name=label(root.text(f"{place}/product_name") or "") or device.name,
        place=device.address,
        arch=gfx_name(nodes[0]["gfx_target_version"]) if nodes else None,
        memory_bytes=root.number(f"{place}/mem_info_vram_total"),
        drivers={} if version is None else {"amdgpu": label(version)},
        parts=tuple(f"partition {index}" for index in range(len(nodes))) if len(nodes) > 1 else (),
    )


def gfx_name(version: int) -> str:
    """`gfx942` of 90402, `gfx90a` of 90010: major, minor and stepping are two decimal digits each."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
