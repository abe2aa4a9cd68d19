# SPDX-License-Identifier: Apache-2.0
"""Memory of the machine and what its cgroups leave of cores and memory: files in, bytes, cores and shares out.

It enforces nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dpfedge.hardware.source.root import Root, whole
from dpfedge.records import dataclass

__all__ = ["Limits", "Memory", "free_share", "group_free", "read_limits", "read_memory", "usable_bytes", "used_quotas"]

_GROUPS_MAX = 64  # controllers, and levels of one; the kernel has about 15 controllers
_USAGE_V1 = "cpuacct.usage"
_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as the largest multiple of the page size


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of main memory; 0 where the kernel does not tell."""

    total: int
    available: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the cgroups of this process allow at most; None is no limit."""

    cpus: float | None = None
    memory: int | None = None
    version: int | None = None
    """cgroup version 1 or 2, None where there are no cgroups."""


def read_memory(root: Root) -> Memory:
    """MemTotal and MemAvailable."""
    values: dict[str, int] = {}
    for line in (root.text("proc/meminfo") or "").splitlines():
        key, _, rest = line.partition(":")
        number = whole(rest.partition("kB")[0].strip())
        if key in ("MemTotal", "MemAvailable", "MemFree") and number is not None:
            values[key] = number * 1024
    return Memory(values.get("MemTotal", 0), values.get("MemAvailable", values.get("MemFree", 0)))


def usable_bytes(memory: Memory, limits: Limits) -> int:
    """What one process may use at most: the machine's memory, or less where a cgroup says so."""
    return memory.total if limits.memory is None else min(memory.total or limits.memory, limits.memory)


def free_share(root: Root) -> float | None:
    """0 to 1: what is left of the machine's memory, or of a cgroup's on the way up where that is less; None: unknown.

    File pages that nobody used lately count as free in a cgroup too: the kernel takes them back before it kills.
    """
    memory, group = read_memory(root), group_free(root)
    shares = [memory.available / memory.total] if memory.total and memory.available else []
    shares += [] if group is None else [group]
    return min(1.0, *shares) if shares else None


def group_free(root: Root) -> float | None:
    """0 to 1: what is left of the limit of the cgroup, on the way up, that has least left; None without a limit."""
    shares = []
    for place, names in _memory_groups(root):
        limits = [size for name in names.limits if (size := _bytes(root.text(f"{place}/{name}"))) is not None]
        used = _bytes(root.text(f"{place}/{names.used}"))
        if limits and used is not None:
            idle = _stat(root.text(f"{place}/memory.stat"), names.idle)
            shares.append(1 - max(0, used - idle) / max(1, min(limits)))
    return max(0.0, min(shares)) if shares else None


@dataclass(frozen=True, slots=True)
class _Names:
    limits: tuple[str, ...]
    used: str
    idle: str


_V2 = _Names(("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1 = _Names(("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


def _memory_groups(root: Root) -> Iterator[tuple[str, _Names]]:
    groups = _groups(root)
    if "" in groups:
        yield from ((place, _V2) for place in _upwards(_unified(root), groups[""]))
    if "memory" in groups:
        yield from ((place, _V1) for place in _upwards("sys/fs/cgroup/memory", groups["memory"]))


def _stat(text: str | None, name: str) -> int:
    rows = (line.partition(" ") for line in (text or "").splitlines())
    return next((whole(value) or 0 for key, _, value in rows if key == name), 0)


def read_limits(root: Root) -> Limits:
    """The tightest limits from this process's cgroup up to the root, for cgroup v2, v1 and the mixed layout."""
    groups = _groups(root)
    if not groups:
        return Limits()
    memory = [_bytes(root.text(f"{place}/memory.max")) for place in _upwards(_unified(root), groups.get("", "/"))]
    if "memory" in groups:
        places = _upwards("sys/fs/cgroup/memory", groups["memory"])
        memory += [_bytes(root.text(f"{place}/memory.limit_in_bytes")) for place in places]
    return Limits(
        cpus=min((cpus for cpus, _ in _quotas(root, groups)), default=None),
        memory=min((value for value in memory if value is not None), default=None),
        version=1 if any(groups) else 2,
    )


def used_quotas(root: Root) -> dict[str, tuple[float, float]]:
    """For each cgroup on the way up with a quota: its cores, and the seconds of processor time it has used so far.

    By the path of its counter; a group that nobody counts is left out.
    """
    found = {}
    for cpus, path in _quotas(root, _groups(root)):
        text = root.text(path)
        version_1 = path.endswith(_USAGE_V1)
        used_s = (whole(text or "") or 0) / 1e9 if version_1 else _stat(text, "usage_usec") / 1e6
        if cpus and used_s:
            found[path] = (cpus, used_s)
    return found


def _quotas(root: Root, groups: Mapping[str, str]) -> Iterator[tuple[float, str]]:
    """Cores that a group may use, and the path of the file that counts what it does use."""
    for place in _upwards(_unified(root), groups.get("", "/")):
        if (cpus := _cpus_v2(root.text(f"{place}/cpu.max"))) is not None:
            yield cpus, f"{place}/cpu.stat"
    for controller, group in groups.items():
        if "cpu" not in controller.split(","):
            continue
        # version 1 counts in another controller, which has the same groups unless somebody made them by hand
        counting = (one for one in groups if "cpuacct" in one.split(",") and groups[one] == group)
        mount, counter = _mount(root, controller, "cpu"), _mount(root, next(counting, controller), "cpuacct")
        for place in _upwards(mount, group):
            if (cpus := _cpus_v1(root, place)) is not None:
                yield cpus, f"{counter}{place.removeprefix(mount)}/{_USAGE_V1}"


def _mount(root: Root, controllers: str, one: str) -> str:
    # kernel 3.10 says "cpuacct,cpu" of what systemd mounts as "cpu,cpuacct", with a link for each of them alone
    joined = f"sys/fs/cgroup/{controllers}"
    return joined if root.has(joined) else f"sys/fs/cgroup/{one}"


def _unified(root: Root) -> str:
    return "sys/fs/cgroup" if root.has("sys/fs/cgroup/cgroup.controllers") else "sys/fs/cgroup/unified"


def _groups(root: Root) -> dict[str, str]:
    lines = [line.split(":", 2) for line in (root.text("proc/self/cgroup") or "").splitlines()[:_GROUPS_MAX]]
    return {parts[1]: parts[2] for parts in lines if len(parts) == 3}


def _upwards(mount: str, group: str) -> Iterator[str]:
    # A container sees its own group as the mount's root while the path names the host's, so the root always counts.
    steps = [step for step in group.split("/", _GROUPS_MAX) if step and step != ".."][:_GROUPS_MAX]
    for count in range(len(steps), -1, -1):
        yield "/".join([mount, *steps[:count]])


def _cpus_v2(text: str | None) -> float | None:
    first, _, second = (text or "max").partition(" ")
    quota, period = whole(first), whole(second)
    return quota / period if quota is not None and period else None


def _cpus_v1(root: Root, place: str) -> float | None:
    quota, period = root.number(f"{place}/cpu.cfs_quota_us"), root.number(f"{place}/cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _bytes(text: str | None) -> int | None:
    size = whole(text or "")
    return size if size is not None and size < _UNLIMITED else None
