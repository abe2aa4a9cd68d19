# SPDX-License-Identifier: Apache-2.0
"""NVIDIA GPUs and MIG instances as devices: what the files of a machine and, where they do not tell, NVML say.

A GPU in MIG mode is not a device, its instances are. GPUs inside a Tegra chip belong to `dpfedge-jetson`. Memory of a
recorded machine's GPU is that of its name; of a recorded MIG instance, the least any profile has: an eighth.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.backend.accelerators import Accelerator
from dpfedge.backend.api import Device
from dpfedge.errors import Unavailable

__all__ = ["TEGRA", "features_of", "instance_of", "list_devices", "memory_of"]

TEGRA = frozenset({"sm_53", "sm_62", "sm_72", "sm_87", "sm_110"})
"""Code targets of GPUs inside a chip."""
_WHERE = "backend cuda"
_GB = 10**9
_SIZE = re.compile(r"(\d{2,3}) ?GB?\b")
# what the name does not say; nvidia.com, data sheets; GB200 and later: the largest MIG profile of mig-parted
_MEMORY_GB: Mapping[str, int] = {
    "NVIDIA A10": 24, "NVIDIA L4": 24, "NVIDIA L40S": 48, "NVIDIA H100 NVL": 94, "NVIDIA H100": 94, "NVIDIA H200": 141,
    "NVIDIA H100 PCIe": 80, "NVIDIA H200 NVL": 141, "NVIDIA GH200": 96, "NVIDIA GH200 120GB": 96,
    "NVIDIA GH200 480GB": 96, "NVIDIA H800": 80, "NVIDIA H800 PCIe": 80, "NVIDIA H20": 96, "NVIDIA B200": 180,
    "NVIDIA GB200": 186, "NVIDIA B300": 269, "NVIDIA B300 SXM6 AC": 269, "NVIDIA GB300": 278,
}  # fmt: skip
_FEATURES = ((53, "fp16"), (61, "int8"), (80, "bf16"), (80, "tf32"), (89, "fp8"), (100, "fp4"))
_INDEX = re.compile(r"[0-9]{1,9}")
_NODES = ("nvidiactl", "nvidia-uvm")


def features_of(arch: str) -> frozenset[str]:
    """Formats a GPU multiplies in: of its code target, `sm_90`."""
    number = int(arch[3:])
    return frozenset(name for least, name in _FEATURES if number >= least)


def memory_of(name: str) -> int:
    """Bytes of a GPU of this name; 0 where it is not known."""
    if name in _MEMORY_GB:
        return _MEMORY_GB[name] * _GB
    match = _SIZE.search(name)
    return int(match[1]) * _GB if match else 0


def list_devices(
    gpus: Sequence[Accelerator], sysroot: Path, ask: Callable[[], Mapping[str, Any]], environ: Mapping[str, str]
) -> list[Device]:
    """Devices of a machine with these GPUs. `ask` (NVML) is called for this machine only, and only when needed.

    Unavailable: a GPU without its kernel driver, or without the right to use it, when no other one can be used.
    """
    mine = [gpu for gpu in gpus if gpu.kind == "gpu.nvidia" and gpu.arch not in TEGRA and "l4t" not in gpu.drivers]
    live = os.path.realpath(sysroot) == "/"
    ready = [gpu for gpu in mine if "nvidia" in gpu.drivers]
    if mine and not ready:
        found = ", ".join(f"{gpu.name} ({gpu.place})" for gpu in mine)
        remedy = "load the NVIDIA kernel driver: modprobe nvidia"
        raise Unavailable("no kernel driver is loaded for the GPU", where=_WHERE, found=found, remedy=remedy)
    told: Mapping[str, Mapping[str, Any]] = {}
    if live and ready:
        _check_nodes(Path("/dev"))
        named = any(form in environ.get("CUDA_VISIBLE_DEVICES", "") for form in ("GPU-", "MIG-"))
        if named or any(not _is_known(gpu) for gpu in ready):
            told = {one["pci"]: one for one in ask()["gpus"]}
    devices = [one for index, gpu in enumerate(ready) for one in _of(index, gpu, told.get(gpu.place))]
    return list(_visible(devices, environ)) if live else devices


def _is_known(gpu: Accelerator) -> bool:
    """Whether files tell everything: a part in a table, whole."""
    return gpu.arch is not None and not gpu.parts and memory_of(gpu.name) > 0


def _check_nodes(folder: Path) -> None:
    for name in _NODES:
        node = folder / name
        if node.exists() and not os.access(node, os.R_OK | os.W_OK):
            raise Unavailable(
                "the device node may not be opened", where=_WHERE, found=os.fspath(node),
                remedy="`dpfedge doctor --backend cuda` names the group to join",
            )  # fmt: skip


def _of(index: int, gpu: Accelerator, told: Mapping[str, Any] | None) -> Iterator[Device]:
    """A GPU as one device, or its MIG instances."""
    arch = gpu.arch or (f"sm_{told['capability']}" if told and told["capability"] else None)
    if arch is None:
        return  # neither files nor NVML know what code it runs
    facts: dict[str, Any] = {"pci": gpu.place}
    if told is not None:
        facts |= {key: told[key] for key in ("uuid", "serial", "vbios") if told[key]}
    memory = (told or {}).get("memory") or memory_of(gpu.name)
    name = (told or {}).get("name") or gpu.name
    whole = Device(
        id=f"cuda:{index}", backend="cuda", kind="gpu.nvidia", name=name, arch=arch, features=features_of(arch),
        memory_bytes=memory, unified_memory=gpu.unified_memory, facts=facts, drivers=gpu.drivers,
    )  # fmt: skip
    if told is not None and told["mig"] is not None:
        yield from (_part(whole, one["place"], one["memory"] or memory // 8, one) for one in told["mig"])
    elif gpu.parts:
        yield from (_part(whole, part, memory // 8, {}) for part in gpu.parts)
    else:
        yield whole


def _part(whole: Device, part: str, memory: int, told: Mapping[str, Any]) -> Device:
    facts = {**whole.facts, "part": part}
    facts.pop("uuid", None)
    if told.get("uuid"):
        facts["uuid"] = told["uuid"]
    return Device(
        id=f"{whole.id}/{part}", backend="cuda", kind=whole.kind, name=told.get("name") or f"{whole.name} {part}",
        arch=whole.arch, features=whole.features, memory_bytes=memory, unified_memory=whole.unified_memory,
        facts=facts, drivers=whole.drivers,
    )  # fmt: skip


def _visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Iterator[Device]:
    """Those that CUDA_VISIBLE_DEVICES leaves. As CUDA does, it stops at the first item that names nothing or is of
    another kind than the first (indices, GPU-…, MIG-…), and leaves nothing when one stands in it twice."""
    if "CUDA_VISIBLE_DEVICES" not in environ:
        yield from devices
        return
    whole = list(dict.fromkeys(one.id.partition("/")[0] for one in devices))
    items = [part.strip() for part in environ["CUDA_VISIBLE_DEVICES"].split(",")]
    seen: dict[str, Device] = {}
    for item in items:
        found = [one for one in devices if _is_named(one, item, whole)]
        if not found or _kind(item) != _kind(items[0]):
            break
        if len({one.id.partition("/")[0] for one in found}) > 1:
            break  # a beginning that two of them have names none
        if any(one.id in seen for one in found):
            return
        seen |= {one.id: one for one in found}
    yield from seen.values()


def instance_of(device: Device) -> str:
    """UUID of a MIG instance; Unavailable where NVML did not tell it, and nobody else does."""
    if "uuid" not in device.facts:
        raise Unavailable(
            "NVML does not name this MIG instance", where=f"{_WHERE}: {device.id}", found="no UUID",
            remedy="`nvidia-smi -L` must list it; in a container: NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )  # fmt: skip
    return str(device.facts["uuid"])


def _kind(item: str) -> str:
    return "" if _INDEX.fullmatch(item) else item[:4]


def _is_named(device: Device, item: str, whole: Sequence[str]) -> bool:
    uuid = str(device.facts.get("uuid", ""))
    if _INDEX.fullmatch(item):
        number = int(item)
        return number < len(whole) and device.id.partition("/")[0] == whole[number]
    if item.startswith("MIG-GPU-"):  # drivers before 470: MIG-GPU-<uuid>/<GPU instance>/<compute instance>
        gpu, _, place = item.removeprefix("MIG-").partition("/")
        old = "gi{}/ci{}".format(*place.split("/")) if place.count("/") == 1 else ""
        return uuid == item or (bool(old) and device.facts.get("part") == old and bool(gpu))
    return bool(item) and uuid.startswith(item)
