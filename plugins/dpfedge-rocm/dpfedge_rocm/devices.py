# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs as devices of this backend: a machine's files in, one device for each GPU or partition out.

A partition (CPX, DPX, …) is a device of its own, with its share of memory and compute units. What `gfx942` leaves open,
MI300X or MI325X, the PCI id in the facts tells. No ROCm library is loaded; rights are looked at on this machine only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfedge.backend.accelerators import Accelerator, accelerators
from dpfedge.backend.api import Device
from dpfedge.errors import Unavailable

__all__ = ["FEATURES", "VARIABLES", "WHERE", "find_devices", "visible"]

WHERE = "backend rocm"
VARIABLES = (("ROCR_VISIBLE_DEVICES",), ("GPU_DEVICE_ORDINAL",), ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"))
"""Variables that hide GPUs, in the order in which they do; of names that mean the same, the first that is set."""
_INDEX = re.compile(r"[0-9]{1,9}")
_KFD, _RENDER = "/dev/kfd", "/dev/dri/renderD{}"
_CDNA2 = frozenset({"fp16", "bf16", "int8_dot"})
FEATURES: Mapping[str, frozenset[str]] = {
    # rocm.docs.amd.com: gpu-specs and precision support, matrix cores
    "gfx90a": _CDNA2, "gfx942": _CDNA2 | {"fp8"}, "gfx950": _CDNA2 | {"fp8"},
}  # fmt: skip
"""Code target → arithmetic of its matrix cores."""


def find_devices(sysroot: Path, backend: str = "rocm") -> Sequence[Device]:
    """Devices below `sysroot`, in KFD's order; none on a machine without AMD GPUs.

    Unavailable: there are AMD GPUs, and none has a KFD node (amdgpu is not loaded), or this user may not open them.
    """
    gpus = [gpu for gpu in accelerators(sysroot) if gpu.kind == "gpu.amd"]
    found = sorted(
        (device for gpu in gpus for device in _devices(gpu, backend)), key=lambda device: int(device.facts["hip"])
    )
    if gpus and not found:
        raise Unavailable(
            "no AMD GPU has a KFD node", where=WHERE,
            found=", ".join(f"{gpu.name} ({gpu.place})" for gpu in gpus),
            remedy="load amdgpu (`modprobe amdgpu`); in a container pass /dev/kfd and /dev/dri",
        )  # fmt: skip
    if found and os.path.realpath(sysroot) == "/":
        found = list(visible(found, os.environ))
        _check_rights(found)
    return found


def visible(devices: Sequence[Device], environ: Mapping[str, str]) -> Sequence[Device]:
    """Those that the runtime's variables leave, in KFD's order; each one's numbers count what those before it left.

    A list by UUIDs is left to HIP, which is asked when a graph is loaded: no file tells them.
    """
    for names in VARIABLES:
        text = next((environ[name] for name in names if name in environ), None)
        if text is None or "GPU-" in text:
            continue
        numbers: list[int] = []
        for item in text.split(","):
            if not _INDEX.fullmatch(item.strip()) or int(item) >= len(devices):
                break  # the runtime stops here, too
            numbers.append(int(item))
        devices = [one for number, one in enumerate(devices) if number in numbers]
    return devices


def _devices(gpu: Accelerator, backend: str) -> Iterator[Device]:
    nodes: Sequence[Mapping[str, Any]] = gpu.facts.get("nodes", ())
    for node in nodes:
        part = f" partition {node['partition']}" if len(nodes) > 1 else ""
        share = None if gpu.memory_bytes is None else gpu.memory_bytes // len(nodes)
        yield Device(
            id=f"{backend}:{node['index']}",
            backend=backend,
            kind="gpu.amd",
            name=gpu.name + part,
            arch=node["arch"],
            features=FEATURES.get(node["arch"], frozenset()),
            memory_bytes=node["memory_bytes"] or share or 0,
            unified_memory=gpu.unified_memory,
            facts=_facts(gpu, node, len(nodes)),
            drivers=dict(gpu.drivers),
        )


def _facts(gpu: Accelerator, node: Mapping[str, Any], parts: int) -> Mapping[str, Any]:
    """`pci`, `id` (`1002:74a1`), `hip` (its number when nothing is hidden), `partition` of `partitions`, ..."""
    modes = {key: gpu.facts[key] for key in ("compute_partition", "memory_partition") if key in gpu.facts}
    return {
        "pci": gpu.place,
        "id": gpu.facts["id"],
        "hip": node["index"],
        "partition": node["partition"],
        "partitions": parts,
        "units": node["units"],
        "render": node["render"],
        "xgmi": bool(gpu.facts.get("hive")) or bool(node["links"]),
        **modes,
    }


def _check_rights(devices: Sequence[Device]) -> None:
    """Unavailable when /dev/kfd is missing or closed to this user: HIP would say that there is no device."""
    renders = [_RENDER.format(one.facts["render"]) for one in devices if one.facts["render"]]
    for path in (_KFD, *renders):
        if not os.path.exists(path):
            what, remedy = "the device node is missing", f"in a container pass `--device {path}`"
        elif not os.access(path, os.R_OK | os.W_OK):
            what, remedy = "the device node may not be opened by this user", "join its group: `dpfedge doctor` names it"
        else:
            continue
        raise Unavailable(what, where=WHERE, found=path, remedy=remedy)
