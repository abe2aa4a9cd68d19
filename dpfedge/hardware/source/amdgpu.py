# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs: the PCI bus and the KFD topology in, accelerators with code target, memory and partitions out.

Feature suffixes of a target (`sramecc+`, `xnack-`) stand in no file; they are left open. ROCm is not loaded.

The facts of an accelerator here: `compute_partition` (`SPX`, `CPX`, …) and `memory_partition` (`NPS1`, …) as far as the
driver tells them, `hive` (whether XGMI links it with others), and `nodes`: for each KFD node of the GPU, one for each
partition, `index` (its place among the machine's GPU nodes, which is HIP's number for it as long as no
`…_VISIBLE_DEVICES` hides any), `node`, `partition`, `render` (minor of its render node), `units` (compute units),
`memory_bytes` (None where no file tells) and `links` (KFD nodes it reaches by XGMI).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.pci import PciDevice
from dpfedge.hardware.source.root import Root, label, whole

__all__ = ["gfx_name", "read_amd"]

_NODES = "sys/class/kfd/kfd/topology/nodes"
_VENDOR = "1002:"
_WANTED = (
    "gfx_target_version", "location_id", "domain", "drm_render_minor", "simd_count", "simd_per_cu",
    "size_in_bytes", "type", "node_to",
)  # fmt: skip
_APUS = frozenset({"1002:74a0"})  # MI300A: CPU and GPU on one package and one memory
_XGMI = 11  # HSA_IOLINK_TYPE_XGMI [ROCm/ROCR-Runtime: libhsakmt]
_BANKS_MAX, _LINKS_MAX = 16, 128
Fields = Mapping[str, int]


def read_amd(root: Root, displays: Sequence[PciDevice], kernel: str | None) -> tuple[Accelerator, ...]:
    """Every AMD display controller or accelerator; `kernel` is the version of a driver that came with the kernel."""
    devices = [device for device in displays if device.id.startswith(_VENDOR)]
    if not devices:
        return ()
    nodes = _nodes(root, {device.address for device in devices})
    version = root.text("sys/module/amdgpu/version") or (kernel if nodes else None)
    return tuple(_gpu(root, device, nodes.get(device.address, []), version) for device in devices)


def _nodes(root: Root, addresses: set[str]) -> dict[str, list[dict[str, Any]]]:
    """PCI address → its nodes in KFD's order: one, or one for each partition."""
    places: dict[str, list[dict[str, Any]]] = {}
    index = 0
    for number in sorted(filter(str.isdecimal, root.names(_NODES)), key=int):
        fields = _properties(root, f"{_NODES}/{number}")
        if fields.get("gfx_target_version"):  # CPUs are nodes too, with 0
            address, partition = _place(fields, addresses)
            found = places.setdefault(address, [])
            found.append(_node(root, int(number), index, partition or len(found), fields))
            index += 1
    return places


def _place(fields: Fields, addresses: set[str]) -> tuple[str, int]:
    """PCI address and partition: the partition is in bits 28 to 31 of the place, in older kernels the function."""
    where, domain = fields.get("location_id", 0), fields.get("domain", 0)
    slot, function = f"{domain:04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 31:02x}", where & 7
    if f"{slot}.{function}" not in addresses and f"{slot}.0" in addresses:
        return f"{slot}.0", function
    return f"{slot}.{function}", where >> 28 & 15


def _node(root: Root, number: int, index: int, partition: int, fields: Fields) -> dict[str, Any]:
    place = f"{_NODES}/{number}"
    banks = [_properties(root, f"{place}/mem_banks/{name}") for name in root.names(f"{place}/mem_banks")[:_BANKS_MAX]]
    links = [_properties(root, f"{place}/io_links/{name}") for name in root.names(f"{place}/io_links")[:_LINKS_MAX]]
    return {
        "index": index,
        "node": number,
        "partition": partition,
        "arch": gfx_name(fields["gfx_target_version"]),
        "render": fields.get("drm_render_minor"),
        "units": fields.get("simd_count", 0) // max(1, fields.get("simd_per_cu", 4)),
        "memory_bytes": sum(bank.get("size_in_bytes", 0) for bank in banks) or None,
        "links": tuple(link["node_to"] for link in links if link.get("type") == _XGMI and "node_to" in link),
    }


def _properties(root: Root, place: str) -> dict[str, int]:
    rows = (line.partition(" ") for line in (root.text(f"{place}/properties") or "").splitlines())
    numbers = ((key, whole(value.strip())) for key, _, value in rows if key in _WANTED)
    return {key: number for key, number in numbers if number is not None}


def _gpu(root: Root, device: PciDevice, nodes: Sequence[Mapping[str, Any]], version: str | None) -> Accelerator:
    place = f"sys/bus/pci/devices/{device.address}"
    return Accelerator(
        kind="gpu.amd",
        name=label(root.text(f"{place}/product_name") or "") or device.name,
        place=device.address,
        arch=nodes[0]["arch"] if nodes else None,
        memory_bytes=root.number(f"{place}/mem_info_vram_total"),
        unified_memory=device.id in _APUS,
        drivers={} if version is None else {"amdgpu": label(version)},
        parts=tuple(f"partition {node['partition']}" for node in nodes) if len(nodes) > 1 else (),
        facts={**dict(_modes(root, place)), "id": device.id, "nodes": tuple(nodes)} if nodes else {"id": device.id},
    )


def _modes(root: Root, place: str) -> Iterator[tuple[str, Any]]:
    for kind in ("compute_partition", "memory_partition"):  # EPERM while the GPU is being reset
        if mode := label(root.text(f"{place}/current_{kind}") or ""):
            yield kind, mode
    yield "hive", root.has(f"{place}/xgmi_device_id")


def gfx_name(version: int) -> str:
    """`gfx942` of 90402, `gfx90a` of 90010: major, minor and stepping are two decimal digits each."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
