# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs that are PCI functions: the bus and `/proc/driver/nvidia` in, accelerators with MIG instances out.

The memory of a GPU or of a MIG instance stands in no file; it is left open. NVML is not loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.pci import PciDevice
from dpfedge.hardware.source.root import Root, label, whole

__all__ = ["ARCHS", "read_nvidia"]

_PROC = "proc/driver/nvidia"
_VENDOR = "10de:"
_VERSION = re.compile(r"Module\b.*?\s([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})\s", re.DOTALL)
_INSTANCE = re.compile(r"gi[0-9]{1,3}")
_COMPUTE = re.compile(r"ci[0-9]{1,3}")
_UNIFIED = frozenset({"10de:2b00", "10de:2e12"})

_HOPPER = "2330 2331 2321 2339 2335 233b 2342 2348 2324 2322 2329 2336 2337 2338 233d"
ARCHS: Mapping[str, str] = {
    f"{_VENDOR}{id}": arch
    for arch, ids in {
        # NVIDIA/open-gpu-kernel-modules: README.md; dusty-nv/jetson-containers: l4t_version.py
        "sm_80": "20b0 20b2 20b5 20f1", "sm_86": "2236", "sm_89": "27b8 26b9", "sm_90": _HOPPER,
        "sm_100": "2901 2941", "sm_103": "3182 31c2", "sm_110": "2b00", "sm_121": "2e12",
    }.items()
    for id in ids.split()
}  # fmt: skip
"""`vendor:device` in hexadecimal → code target."""


def read_nvidia(root: Root, displays: Sequence[PciDevice]) -> tuple[Accelerator, ...]:
    """Every NVIDIA display controller; `drivers` is empty when the kernel module is not loaded."""
    devices = [device for device in displays if device.id.startswith(_VENDOR)]
    version = _version(root) if devices else None
    return tuple(_gpu(root, device, version) for device in devices)


def _version(root: Root) -> str | None:
    match = _VERSION.search((root.text(f"{_PROC}/version") or "") + "\n")
    return match[1] if match else None


def _gpu(root: Root, device: PciDevice, version: str | None) -> Accelerator:
    told = _fields(root.text(f"{_PROC}/gpus/{device.address}/information") or "")
    minor = whole(told.get("Device Minor", ""))
    return Accelerator(
        kind="gpu.nvidia",
        name=label(told.get("Model", "")) or device.name,
        place=device.address,
        arch=ARCHS.get(device.id),
        unified_memory=device.id in _UNIFIED,
        drivers={} if version is None else {"nvidia": version},
        parts=() if minor is None else tuple(_instances(root, minor)),
    )


def _fields(text: str) -> dict[str, str]:
    rows = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in rows}


def _instances(root: Root, minor: int) -> Iterator[str]:
    """The compute instances of each GPU instance of MIG; a GPU instance without one can run nothing."""
    place = f"{_PROC}/capabilities/gpu{minor}/mig"
    for gpu in sorted(root.names(place), key=lambda name: (len(name), name)):
        if _INSTANCE.fullmatch(gpu):
            for compute in root.names(f"{place}/{gpu}"):
                # read, not only listed: the right to use an instance is that of this file
                if _COMPUTE.fullmatch(compute) and root.bytes(f"{place}/{gpu}/{compute}/access") is not None:
                    yield f"{gpu}/{compute}"
