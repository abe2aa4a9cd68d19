# SPDX-License-Identifier: Apache-2.0
"""The devices that OpenCL shows on this machine, and those of a recorded one as its files name them.

This machine is asked in a child process (`enumerate.py`); of any other root only files are read. It opens no device.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfedge.backend.accelerators import Accelerator, accelerators
from dpfedge.backend.api import Device
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.errors import Unavailable
from dpfedge_opencl.library import hang_seconds, hung_error

__all__ = ["devices_of", "here"]

_WHERE = "backend opencl"
_MALI = re.compile(r"(?:Mali|Immortalis)-([A-Za-z0-9]{1,12})")
_ADRENO = re.compile(r"Adreno(?:\(TM\))? ?([0-9]{3,4})")
_ALIASES = {"LODX": "G610"}  # what the driver g6p0 calls the G610 of RK3588
_KINDS = {"gpu.arm", "gpu.qualcomm"}
_NODES = ("/dev/mali0", "/dev/kgsl-3d0")
_EXTENSIONS: Mapping[str, frozenset[str]] = {
    "fp16": frozenset({"cl_khr_fp16"}),
    "int8_dot": frozenset({"cl_khr_integer_dot_product", "cl_arm_integer_dot_product_int8"}),
}
_OLDEST = (1, 2)
_RECORDED: Mapping[str, frozenset[str]] = {"mali-g610": frozenset({"fp16", "int8_dot"})}
"""Architecture → features that its driver was seen to have; files tell nothing of extensions."""


def devices_of(sysroot: Path) -> Sequence[Device]:
    """The devices below `sysroot`; Unavailable says what is missing on this machine."""
    if str(sysroot) == "/":
        listed = here()
        reasons = [_unusable(found) for found in listed]
        if all(reasons):
            raise Unavailable("no OpenCL device can be used", where=_WHERE, found="; ".join(filter(None, reasons)))
        rows = enumerate(zip(listed, reasons, strict=True))
        return [_device(index, found) for index, (found, why) in rows if not why]
    memory = cpu_facts(sysroot).memory_bytes
    found = [one for one in accelerators(sysroot) if one.kind in _KINDS]
    return [_recorded(index, one, memory) for index, one in enumerate(found)]


def here() -> Sequence[Mapping[str, Any]]:
    """What the OpenCL library lists, device by device; told once per process and set of drivers."""
    for node in _NODES:
        if os.path.exists(node) and not os.access(node, os.R_OK | os.W_OK):
            raise Unavailable(
                "no permission for the GPU's device node", where=_WHERE, found=node, allowed="reading and writing",
                remedy=f"add this user to the group of {node} (`ls -l {node}`)",
            )  # fmt: skip
    return _listed(tuple(sorted((name, value) for name, value in os.environ.items() if "OCL" in name)))


@lru_cache(maxsize=4)
def _listed(environment: object) -> Sequence[Mapping[str, Any]]:
    limit = hang_seconds()
    program = [sys.executable, "-P", str(Path(__file__).with_name("enumerate.py"))]
    try:
        done = subprocess.run(program, capture_output=True, timeout=limit, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as error:
        raise hung_error(_WHERE, "listing its devices", limit) from error
    if done.returncode or not done.stdout:  # one that ends its process ends it as if all were well
        text = " ".join(done.stderr.decode(errors="replace").split())[-400:]
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
        raise Unavailable(
            "the OpenCL driver fails while it lists devices", where=_WHERE, found=f"{how}: {text or 'no word of why'}",
            remedy=f"reinstall the driver, or remove its .icd file: {_vendors()}",
        )  # fmt: skip
    found = json.loads(done.stdout)
    if "error" in found:
        raise _refused(found["error"], found["text"])
    if not found["devices"]:
        raise Unavailable("the OpenCL platforms show no device", where=_WHERE, remedy="see `clinfo`")
    return list(found["devices"])


def _unusable(found: Mapping[str, Any]) -> str | None:
    """Why a device is left out: it has no compiler, or another OpenCL than kernels are written in."""
    version = re.match(r"OpenCL (\d+)\.(\d+)", str(found["version"]))
    if version is None or (int(version[1]), int(version[2])) < _OLDEST:
        return f"{found['name']} is {found['version']}, and kernels need {_OLDEST[0]}.{_OLDEST[1]}"
    return None if found["compiler"] else f"{found['name']} has no compiler"


def _refused(name: str, text: str) -> Unavailable:
    if name == "IMPORT":
        return Unavailable(
            "pyopencl cannot be imported", where=_WHERE, found=text, remedy="pip install dpfedge[opencl]"
        )
    if name == "PLATFORM_NOT_FOUND_KHR":
        return Unavailable(
            "there is no OpenCL driver", where=_WHERE, found=_vendors(),
            remedy="install the vendor's driver with its .icd file; for the CPU: pip install pocl-binary-distribution",
        )  # fmt: skip
    return Unavailable("the OpenCL library lists no devices", where=_WHERE, found=f"{name} from {text}")


def _vendors() -> str:
    folder = Path(os.environ.get("OCL_ICD_VENDORS", "/etc/OpenCL/vendors"))
    names = sorted(path.name for path in folder.glob("*.icd")) if folder.is_dir() else []
    return f"{', '.join(names) or 'no .icd file'} in {folder}"


def _device(index: int, found: Mapping[str, Any]) -> Device:
    kind, arch = _kind(found)
    extensions = set(found["extensions"])
    features = {name for name, any_of in _EXTENSIONS.items() if any_of & extensions}
    if found["type"] == "cpu":  # its compiler uses the CPU's own instructions; types of the language need an extension
        features |= cpu_facts("/").features - _EXTENSIONS.keys()
    memory = min(int(found["memory_bytes"]), cpu_facts("/").memory_bytes or int(found["memory_bytes"]))
    shared = bool(found["unified"])
    return Device(
        id=f"opencl:{index}",
        backend="opencl",
        kind=kind,
        name=str(found["name"]),
        arch=arch,
        features=frozenset(features | ({"unified_memory"} if shared else set())),
        memory_bytes=memory if shared else int(found["memory_bytes"]),
        unified_memory=shared,
        facts={name: found[name] for name in ("platform", "platform_version", "version", "driver", "vendor", "type")}
        | {"priorities": 3 if "cl_khr_priority_hints" in extensions else 1}
        | {"in_place": found["type"] == "cpu" or "cl_arm_import_memory" in extensions},
        drivers={"opencl": version[0]} if (version := re.search(r"\d+(\.\d+)+", str(found["driver"]))) else {},
    )


def _kind(found: Mapping[str, Any]) -> tuple[str, str]:
    """Device class and architecture by what the driver calls the device."""
    name = f"{found['name']} {found['version']}"
    if found["type"] == "cpu":
        facts = cpu_facts("/")
        return f"cpu.{facts.arch}", facts.level
    if match := _MALI.search(name):
        return "gpu.arm", f"mali-{_ALIASES.get(match[1].upper(), match[1]).lower()}"
    if match := _ADRENO.search(name):
        return "gpu.qualcomm", f"adreno-{match[1]}"
    maker = next((maker for maker in ("nvidia", "amd", "intel") if maker in str(found["vendor"]).lower()), "other")
    return f"gpu.{maker}", re.sub(r"[^a-z0-9]+", "-", str(found["name"]).lower()).strip("-") or "unknown"


def _recorded(index: int, found: Accelerator, memory: int) -> Device:
    arch = found.arch or "unknown"
    return Device(
        id=f"opencl:{index}",
        backend="opencl",
        kind=found.kind,
        name=found.name,
        arch=arch,
        features=_RECORDED.get(arch, frozenset()) | {"unified_memory"},
        memory_bytes=memory,
        unified_memory=True,
        facts={"place": found.place},
        drivers=found.drivers,
    )
