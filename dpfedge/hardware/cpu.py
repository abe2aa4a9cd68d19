# SPDX-License-Identifier: Apache-2.0
"""The CPU of a machine: architecture level, features, cores, clusters and caches, from files below a root.

It runs no instruction to find out and reports no GPU. What is hidden or foreign is named in `notes`, never guessed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from dpfedge.hardware.architecture import LEVELS, PARTS, features_of, level_of
from dpfedge.hardware.source.cpuinfo import CpuInfo, read_auxv, read_cpuinfo
from dpfedge.hardware.source.root import Root, core_list, label, whole
from dpfedge.records import dataclass

__all__ = ["Cache", "Cluster", "Cpu", "read_cpu"]

_SYS = "sys/devices/system/cpu"
_NAMES = {"arm64": "aarch64", "amd64": "x86_64"}


@dataclass(frozen=True, slots=True)
class Cluster:
    """Cores of one kind. `capacity` is the kernel's relative speed (1024: the fastest), None if it does not tell."""

    name: str
    cores: tuple[int, ...]
    capacity: int | None


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of a cluster's first core, in bytes; `shared_by` counts the cores that share it."""

    cluster: str
    level: int
    kind: str
    size_bytes: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class Cpu:
    """What the CPU is. `arch` is `x86_64`, `aarch64`, or the kernel's word for another one."""

    arch: str
    model: str
    level: str
    features: frozenset[str]
    cores: tuple[int, ...]
    """Online logical cores."""
    allowed: tuple[int, ...]
    """Those of them this process may run on."""
    physical: int
    """Online cores without their hardware threads."""
    clusters: tuple[Cluster, ...]
    """From the fastest."""
    caches: tuple[Cache, ...]
    notes: tuple[str, ...]
    """What was hidden or contradictory, and what was taken instead."""


def read_cpu(root: Root) -> Cpu:
    """Everything the files below `root` tell of the CPU; never fails, `notes` says what is missing."""
    notes: list[str] = []
    info = read_cpuinfo(root)
    arch = _architecture(root, info)
    words = _words(root, arch, info, notes)
    if info is not None and info.arch not in (None, arch):
        info = None  # nothing in a foreign text is true of this machine's cores
    cores, allowed = _cores(root, info, notes)
    clusters = _clusters(root, arch, cores, info)
    return Cpu(
        arch=arch,
        model=_model(info, clusters),
        level=level_of(arch, words),
        features=features_of(arch, words),
        cores=cores,
        allowed=allowed,
        physical=_physical(root, cores, info),
        clusters=clusters,
        caches=tuple(cache for cluster in clusters for cache in _caches(root, cluster)),
        notes=tuple(notes),
    )


def _architecture(root: Root, info: CpuInfo | None) -> str:
    # The kernel's own word wins: under an emulator /proc/cpuinfo may be the host's.
    told = os.uname().machine if root.live else root.text("proc/sys/kernel/arch")
    if told is None:
        return (info.arch if info is not None else None) or "unknown"
    return _NAMES.get(told, label(told))


def _words(root: Root, arch: str, info: CpuInfo | None, notes: list[str]) -> frozenset[str]:
    """The feature words; on aarch64 the auxiliary vector counts first, being what the kernel promises programs."""
    promised, _ = read_auxv(root) if arch == "aarch64" else (frozenset(), None)
    if info is None:
        problem = f"/proc/cpuinfo {_why(root, 'proc/cpuinfo')}"
    elif info.arch != arch:
        problem = f"/proc/cpuinfo is of {info.arch or 'no known architecture'}, the machine is {arch}"
    else:
        return promised or info.words
    if promised:
        taken = "features come from the auxiliary vector"
    else:
        taken = f"only what every {arch} CPU has is assumed" if arch in LEVELS else "no feature is assumed"
    notes.append(f"{problem}; {taken}")
    return promised


def _why(root: Root, path: str) -> str:
    return f"cannot be read ({root.unreadable[path]})" if path in root.unreadable else "is missing"


def _cores(root: Root, info: CpuInfo | None, notes: list[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    status = root.text("proc/self/status") or ""
    line = next((line for line in status.splitlines() if line.startswith("Cpus_allowed_list:")), "")
    allowed = tuple(sorted(os.sched_getaffinity(0))) if root.live else core_list(line.partition(":")[2])
    online = core_list(root.text(f"{_SYS}/online")) or core_list(root.text(f"{_SYS}/present"))
    if not online:
        taken = (
            "the cores this process may use" if allowed else "/proc/cpuinfo" if info and info.processors else "one core"
        )
        notes.append(f"/{_SYS} is hidden; cores are counted from {taken}")
        online = allowed or (info.processors if info else ()) or (0,)
    return online, tuple(core for core in allowed if core in set(online)) or online


def _physical(root: Root, cores: Sequence[int], info: CpuInfo | None) -> int:
    if info is not None and info.physical is not None and len(info.processors) == len(cores):
        return info.physical
    siblings = {root.text(f"{_SYS}/cpu{core}/topology/thread_siblings_list") or str(core) for core in cores}
    return len(siblings)


def _clusters(root: Root, arch: str, cores: Sequence[int], info: CpuInfo | None) -> tuple[Cluster, ...]:
    parts = info.parts if info is not None else {}
    groups: dict[tuple[int | None, tuple[int, int] | None], list[int]] = {}
    for core in cores:
        part = parts.get(core) or (_midr(root, core) if arch == "aarch64" else None)
        groups.setdefault((root.number(f"{_SYS}/cpu{core}/cpu_capacity"), part), []).append(core)
    order = sorted(groups.items(), key=lambda item: (-(item[0][0] or 0), item[1][0]))
    single = len(order) == 1
    return tuple(
        Cluster(_cluster_name(part, index, single), tuple(members), capacity)
        for index, ((capacity, part), members) in enumerate(order)
    )


def _midr(root: Root, core: int) -> tuple[int, int] | None:
    value = root.number(f"{_SYS}/cpu{core}/regs/identification/midr_el1", 16)
    return None if value is None else (value >> 24 & 0xFF, value >> 4 & 0xFFF)


def _cluster_name(part: tuple[int, int] | None, index: int, single: bool) -> str:
    if part is not None:
        return PARTS.get(part, f"implementer {part[0]:#x} part {part[1]:#x}")
    return "cpu" if single else f"cpu{index}"


def _model(info: CpuInfo | None, clusters: Sequence[Cluster]) -> str:
    if info is not None and info.model:
        return info.model
    counts: dict[str, int] = {}
    for cluster in clusters:
        counts[cluster.name] = counts.get(cluster.name, 0) + len(cluster.cores)
    return " + ".join(f"{count}× {name}" for name, count in counts.items())


def _caches(root: Root, cluster: Cluster) -> Iterator[Cache]:
    place = f"{_SYS}/cpu{cluster.cores[0]}/cache"
    for index in root.names(place):
        if not index.startswith("index"):
            continue
        level, size = root.number(f"{place}/{index}/level"), _size(root.text(f"{place}/{index}/size"))
        if level is not None and size is not None:
            kind = (root.text(f"{place}/{index}/type") or "unified").lower()
            shared = core_list(root.text(f"{place}/{index}/shared_cpu_list"))
            yield Cache(cluster.name, level, kind, size, len(shared) or 1)


def _size(text: str | None) -> int | None:
    """Bytes of `48K` or `3M`, as the kernel writes cache sizes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits = (text or "").rstrip("KMG")
    number = whole(digits)
    return None if number is None else number * units.get((text or "")[len(digits) :], 1)
