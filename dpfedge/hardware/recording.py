# SPDX-License-Identifier: Apache-2.0
"""A machine in, the files that probing and binding read of it out: a folder or a tar file that `--sysroot` takes.

Only what `RULES` names is kept, and of it only what is read; `RECORDING.md` lists it. No serial number, host name, MAC
address or user name is among it. It records no file that a plugin reads by itself.
"""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from dpfedge.errors import UsageError
from dpfedge.hardware.probe import probe_root
from dpfedge.hardware.source.root import Root

__all__ = ["RULES", "record", "write_folder", "write_tar"]

Files: TypeAlias = Mapping[str, bytes]
"""Path relative to the root → content."""


def _all(data: bytes) -> bytes:
    return data


def _lines(pattern: str) -> Callable[[bytes], bytes]:
    """Keeps the lines that begin like this."""
    wanted = re.compile(pattern.encode())
    return lambda data: b"".join(line for line in data.splitlines(keepends=True) if wanted.match(line))


def _first(pattern: str) -> Callable[[bytes], bytes]:
    """Keeps the text from the start to the end of the match."""
    wanted = re.compile(pattern.encode())

    def _keep(data: bytes) -> bytes:
        match = wanted.match(data)
        return match[0] + b"\n" if match else b""

    return _keep


def _presence(data: bytes) -> bytes:
    """Keeps that the file is there, and nothing of it."""
    return b""


def _auxv(data: bytes) -> bytes:
    # the other entries are addresses and ids of this process
    pairs = struct.iter_unpack("=QQ", data[: len(data) // 16 * 16])
    return b"".join(struct.pack("=QQ", *pair) for pair in pairs if pair[0] in (0, 6, 16, 26))


_CPUINFO = (
    r"\s*$|(processor|vendor_id|cpu family|model|model name|stepping|physical id|core id|flags|Features|"
    r"CPU (implementer|architecture|variant|part|revision))\s*:"
)
_KFD = r"(gfx_target_version|location_id|domain|drm_render_minor|simd_count|simd_per_cu) "
RULES: tuple[tuple[str, Callable[[bytes], bytes]], ...] = (
    (r"proc/cpuinfo", _lines(_CPUINFO)),
    (r"proc/meminfo", _lines(r"Mem(Total|Free|Available):")),
    (r"proc/self/status", _lines(r"Cpus_allowed_list:")),
    (r"proc/self/auxv", _auxv),
    (r"proc/self/smaps", _lines(r"KernelPageSize:")),
    (r"proc/self/cgroup", _all),
    (r"proc/sys/kernel/(arch|osrelease)", _all),
    (r"sys/devices/system/cpu/(online|present)", _all),
    (
        r"sys/devices/system/cpu/cpu[0-9]+/(cpu_capacity|topology/thread_siblings_list|regs/identification/midr_el1)",
        _all,
    ),
    (r"sys/devices/system/cpu/cpu[0-9]+/cache/index[0-9]+/(level|type|size|shared_cpu_list)", _all),
    (r"sys/fs/cgroup/(.*/)?(cgroup\.controllers|cpu\.max|memory\.max)", _all),
    (r"sys/fs/cgroup/(.*/)?(cpu\.cfs_quota_us|cpu\.cfs_period_us|memory\.limit_in_bytes)", _all),
    (r"(proc/device-tree|sys/firmware/devicetree/base)/(compatible|model)", _all),
    (r"sys/class/dmi/id/(sys_vendor|product_name|board_name|bios_version)", _all),
    (r"sys/bus/pci/devices/[0-9a-f:.]+/(class|vendor|device|product_name|mem_info_vram_total)", _all),
    (r"etc/nv_tegra_release", _lines(r"# R[0-9]")),
    (r"proc/driver/nvidia/version", _first(r"NVRM version:.*?Module\b.*?\s[0-9]{3,4}(\.[0-9]+){1,2}")),
    (r"proc/driver/nvidia/gpus/[0-9a-f:.]+/information", _lines(r"(Model|Bus Location|Device Minor):")),
    (r"proc/driver/nvidia/capabilities/gpu[0-9]+/mig/gi[0-9]+/ci[0-9]+/access", _all),
    (r"sys/bus/pci/devices/[0-9a-f:.]+/current_(compute|memory)_partition", _all),
    (r"sys/bus/pci/devices/[0-9a-f:.]+/xgmi_device_id", _presence),
    (r"sys/class/kfd/kfd/topology/nodes/[0-9]+/properties", _lines(_KFD)),
    (r"sys/class/kfd/kfd/topology/nodes/[0-9]+/mem_banks/[0-9]+/properties", _lines(r"size_in_bytes ")),
    (r"sys/class/kfd/kfd/topology/nodes/[0-9]+/io_links/[0-9]+/properties", _lines(r"(type|node_to) ")),
    (r"sys/module/(amdgpu|(mali|bifrost|valhall)_kbase)/version", _all),
    (r"sys/class/misc/mali0/device/gpuinfo", _all),
    (r"sys/class/drm/card[0-9]+/device/uevent", _lines(r"(DRIVER|OF_COMPATIBLE_[0-9]+)=")),
    (r"sys/class/kgsl/kgsl-3d0/gpu_model", _all),
)
"""(pattern of the whole path, what is kept of the content): a file that no pattern names is never recorded."""


class _Tape(Root):
    """A root that keeps what was read."""

    def __init__(self, sysroot: str | Path) -> None:
        super().__init__(sysroot)
        self.files: dict[str, bytes] = {}

    def bytes(self, path: str) -> bytes | None:
        data = super().bytes(path)
        if data is not None:
            self.files[path] = data
        return data

    def has(self, path: str) -> bool:
        place = self._place(path)
        if place is not None and os.path.isdir(place):
            return True  # it is in the recording when something in it is
        return self.bytes(path) is not None


def record(sysroot: str | Path = "/") -> Files:
    """What probing the machine below `sysroot` reads, without what names this one machine or its users."""
    tape = _Tape(sysroot)
    machine = probe_root(tape)
    for path in ("proc/self/auxv", "proc/self/status", "proc/sys/kernel/arch", "proc/sys/kernel/osrelease"):
        tape.bytes(path)
    if tape.live:  # kernels before 6.1 tell it to programs only
        tape.files.setdefault("proc/sys/kernel/arch", f"{os.uname().machine}\n".encode())
        tape.files["proc/self/auxv"] = tape.files.get("proc/self/auxv") or struct.pack("=QQ", 6, machine.page_bytes)
    folders = dict(_cgroup_names(tape))
    return {
        _renamed(path, folders): keep(data if path != "proc/self/cgroup" else _cgroup_lines(data))
        for path, data in sorted(tape.files.items())
        for keep in _rules(path)
    }


def _rules(path: str) -> Iterator[Callable[[bytes], bytes]]:
    yield from (keep for pattern, keep in RULES if re.fullmatch(pattern, path))


def _cgroup_lines(data: bytes) -> bytes:
    """The groups' places without their names, which hold user ids, session numbers and container ids."""
    rows = [line.split(":", 2) for line in data.decode("utf-8", "replace").splitlines()]
    return "".join(f"{row[0]}:{row[1]}:{_numbered(row[2])}\n" for row in rows if len(row) == 3).encode()


def _numbered(group: str) -> str:
    steps = [step for step in group.split("/") if step and step != ".."]
    return "/" + "/".join(f"g{index}" for index in range(1, len(steps) + 1))


def _cgroup_names(tape: _Tape) -> Iterator[tuple[str, str]]:
    """Folder of each group → the same folder with numbered names."""
    for line in tape.files.get("proc/self/cgroup", b"").decode("utf-8", "replace").splitlines():
        _, _, rest = line.partition(":")
        controller, _, group = rest.partition(":")
        steps = [step for step in group.split("/") if step and step != ".."]
        alone = [f"sys/fs/cgroup/{one}" for one in controller.split(",")]  # see `source/memory.py`
        mounts = [f"sys/fs/cgroup/{controller}", *alone] if controller else ["sys/fs/cgroup", "sys/fs/cgroup/unified"]
        for mount in mounts:
            for count in range(1, len(steps) + 1):
                yield "/".join([mount, *steps[:count]]), mount + _numbered("/".join(steps[:count]))


def _renamed(path: str, folders: Mapping[str, str]) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folders.get(folder, folder)}/{name}"


def write_folder(files: Files, folder: Path) -> None:
    """Lay the files into a new or empty folder; UsageError when it holds something or cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError("the folder is not empty", where=str(folder), remedy="name a new one")
        for path, data in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
    except OSError as error:
        raise UsageError(f"the recording cannot be written: {error.strerror}", where=str(folder)) from error


def write_tar(files: Files, path: Path) -> None:
    """Write the files as a tar file, the same bytes for the same files; UsageError when it cannot be written."""
    try:
        with path.open("wb") as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise UsageError(f"the recording cannot be written: {error.strerror}", where=str(path)) from error
