# SPDX-License-Identifier: Apache-2.0
"""Kernel drivers and what hides GPUs: a machine in; GPUs without a driver, drivers too old, bad device lists, out.

It loads no driver library.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from dpfedge.doctor.surroundings import Finding, Surroundings
from dpfedge.doctor.wheels import wheels
from dpfedge.hardware.source.root import whole

__all__ = ["check_age", "check_drivers", "check_hidden", "check_visible"]

# docs.nvidia.com: CUDA compatibility, minor version compatibility
_OLDEST: Mapping[int, int] = {13: 580, 12: 525, 11: 450}
_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "gpu.nvidia": ("the NVIDIA kernel driver", ("cuda", "jetson")),
    "gpu.amd": ("amdgpu", ("rocm", "opencl")),
    "gpu.arm": ("mali_kbase, panthor or panfrost", ("opencl",)),
    "gpu.qualcomm": ("kgsl", ("opencl",)),
}
_INDEX = re.compile(r"[0-9]{1,4}")
_UUID = re.compile(r"GPU-[0-9a-fA-F]{1,8}[0-9a-fA-F-]{0,28}")
_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]{36}/[0-9]{1,3}/[0-9]{1,3}|[0-9a-fA-F-]{36})")
_VARIABLE = "CUDA_VISIBLE_DEVICES"
_AMD = ("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES")  # the first knows UUIDs, too
_AMD_UUID = re.compile(r"GPU-[0-9a-fA-F-]{16,36}")
_CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def check_drivers(surroundings: Surroundings) -> Iterator[Finding]:
    """A GPU for which no kernel driver is loaded."""
    for gpu in surroundings.machine.accelerators:
        if not gpu.drivers and gpu.kind in _KINDS:
            wanted, backends = _KINDS[gpu.kind]
            where = f"{gpu.name} ({gpu.place})"
            yield Finding("drivers", "fault", where, "no kernel driver is loaded for it", f"load {wanted}", backends)


def check_age(surroundings: Surroundings) -> Iterator[Finding]:
    """Driver and CUDA of each installed build side by side; a fault where the driver is too old for it."""
    versions = {gpu.drivers["nvidia"] for gpu in surroundings.machine.accelerators if "nvidia" in gpu.drivers}
    for wheel in wheels(surroundings):
        oldest = _OLDEST.get(wheel.cuda or 0)
        for version in sorted(versions) if wheel.cuda else ():
            where, what = f"driver nvidia {version}", f"{wheel.title} is built for CUDA {wheel.cuda}"
            major = whole(version.partition(".")[0])
            if None not in (oldest, major) and major < oldest:  # type: ignore[operator]
                what += f", which needs driver {oldest} or newer"
                remedy = f"upgrade the driver, or install a build for an older CUDA than {wheel.cuda}"
                yield Finding("drivers", "fault", where, what, remedy, ("cuda",))
            else:
                yield Finding("drivers", "note", where, what, "", ("cuda",))


def check_visible(surroundings: Surroundings) -> Iterator[Finding]:
    """A list of devices that CUDA reads otherwise than it was meant: it stops without a word at what it dislikes."""
    text = surroundings.environ.get(_VARIABLE)
    if text is None:
        return
    count = sum(gpu.kind == "gpu.nvidia" for gpu in surroundings.machine.accelerators)
    problem = _problem(text, count)
    if problem is not None:
        level, what, remedy = problem
        where = f"{_VARIABLE}={text}"
        yield Finding("visible", "fault" if level else "warning", where, what, remedy, ("cuda",))


def check_hidden(surroundings: Surroundings) -> Iterator[Finding]:
    """Variables beside CUDA's that keep GPUs from this process: those of AMD's runtimes and of NVIDIA's containers."""
    kinds = Counter(gpu.kind for gpu in surroundings.machine.accelerators)
    for name in _AMD if kinds["gpu.amd"] else ():
        text = surroundings.environ.get(name)
        if text is None:
            continue
        items = [item.strip() for item in text.split(",")]
        bad = [
            item for item in items if not (_INDEX.fullmatch(item) or (name == _AMD[0] and _AMD_UUID.fullmatch(item)))
        ]
        where, allowed = f"{name}={text}", "use indices (0,1)" + (" or GPU-… of rocminfo" if name == _AMD[0] else "")
        if text.strip() in ("", "-1"):
            yield Finding("visible", "warning", where, "it hides every GPU from HIP", f"unset {name}", ("rocm",))
        elif bad:
            what = f"{bad[0] or 'an empty item'!r} is no form that it knows: those behind it are not seen"
            yield Finding("visible", "fault", where, what, allowed, ("rocm",))
        else:
            yield Finding("visible", "note", where, "other GPUs are hidden", "", ("rocm",))
    text = surroundings.environ.get(_CONTAINER)
    if kinds["gpu.nvidia"] and text is not None and text.strip() in ("", "void", "none"):
        what = "the container was given no GPU: it sees them on the bus, and neither their driver nor their nodes"
        remedy = "start it with --gpus all, or with the device's number or UUID in the variable"
        yield Finding("visible", "fault", f"{_CONTAINER}={text}", what, remedy, ("cuda", "jetson"))


def _problem(text: str, count: int) -> tuple[bool, str, str] | None:
    """(whether it is a fault, what, remedy) of a list, on a machine with `count` GPUs; 0 when that is not known."""
    items = [item.strip() for item in text.split(",")]
    allowed = "use indices (0,1), GPU-… or MIG-… as nvidia-smi -L prints them"
    if text.strip() in ("", "-1", "NoDevFiles"):
        return False, "it hides every GPU from CUDA", f"unset {_VARIABLE}"
    for place, item in enumerate(items):
        if not (_INDEX.fullmatch(item) or _UUID.fullmatch(item) or _MIG.fullmatch(item)):
            kept = f"only the {place} before it are seen" if place else "no GPU is seen"
            return True, f"{item or 'an empty item'!r} is no form that CUDA knows: {kept}", allowed
        if count and _INDEX.fullmatch(item) and int(item) >= count:
            return True, f"there is no GPU {item} among {count}: it and those behind it are not seen", allowed
    if len(set(items)) < len(items):
        return True, "one device stands in it twice: CUDA then sees none", "name each device once"
    if len({item.partition("-")[0] if "-" in item else "index" for item in items}) > 1:
        return True, "it mixes indices, GPUs and MIG instances", allowed
    if len(items) > 1 and items[0].startswith("MIG-"):
        return False, "a process uses one MIG instance only, the first", "start a process for each instance"
    return None
