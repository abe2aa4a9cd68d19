# SPDX-License-Identifier: Apache-2.0
"""Memory and cgroup limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.source.memory import (
    Limits,
    Memory,
    free_share,
    group_free,
    read_limits,
    read_memory,
    usable_bytes,
    used_quotas,
)
from dpfedge.hardware.source.root import Root

Record = Callable[[str], Path]


def lay(root: Path, files: dict[str, str]) -> Root:
    """A root with these files."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Root(root)


def test_memory__of_meminfo(record: Record) -> None:
    """Kilobytes become bytes."""
    assert read_memory(Root(record("orin"))) == Memory(64349640 * 1024, 64349640 * 3 // 4 * 1024)


@pytest.mark.parametrize("text", ["", "MemTotal: lots kB\n", "MemTotal:\n", "nothing"])
def test_memory__that_is_not_told(tmp_path: Path, text: str) -> None:
    """Unknown memory is 0, not an error."""
    assert read_memory(lay(tmp_path, {"proc/meminfo": text})) == Memory(0, 0)


def test_memory__old_kernel_without_available(tmp_path: Path) -> None:
    """Kernels before 3.14 tell free memory only."""
    assert read_memory(lay(tmp_path, {"proc/meminfo": "MemTotal: 2 kB\nMemFree: 1 kB\n"})) == Memory(2048, 1024)


def test_limits__version_2_takes_the_tightest_up_to_the_root(record: Record) -> None:
    """The group's own limit is none, its parent's counts."""
    assert read_limits(Root(record("h100"))) == Limits(cpus=3.5, memory=64 << 30, version=2)


def test_limits__version_1(record: Record) -> None:
    """Joint controller folders are found; the largest number is no limit."""
    assert read_limits(Root(record("x86"))) == Limits(cpus=1.5, memory=4 << 30, version=1)


def test_limits__container_whose_path_is_the_hosts(tmp_path: Path) -> None:
    """Without the host's folders the mount's root is the container's own group."""
    files = {
        "proc/self/cgroup": "0::/kubepods/pod1/box\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/memory.max": "1048576\n",
    }

    assert read_limits(lay(tmp_path, files)) == Limits(cpus=0.5, memory=1 << 20, version=2)


def test_limits__mixed_layout(tmp_path: Path) -> None:
    """Controllers of version 1 count beside an empty version 2 tree."""
    files = {
        "proc/self/cgroup": "4:memory:/a\n1:cpu:/\n0::/\n",
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2097152\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    }

    assert read_limits(lay(tmp_path, files)) == Limits(cpus=None, memory=2 << 20, version=1)


@pytest.mark.parametrize("quota", ["", "max", "x y", "100 0", "100", "-5 100"])
def test_limits__quota_that_says_nothing(tmp_path: Path, quota: str) -> None:
    """A quota that is no number over a period is no limit."""
    files = {"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/cgroup.controllers": "", "sys/fs/cgroup/cpu.max": quota}

    assert read_limits(lay(tmp_path, files)).cpus is None


def test_limits__no_cgroups(tmp_path: Path) -> None:
    """A kernel without cgroups limits nothing."""
    assert read_limits(Root(tmp_path)) == Limits()


def test_usable__is_the_smaller_of_memory_and_limit() -> None:
    """A limit above the memory is no promise; a limit is taken when the memory is unknown."""
    memory = Memory(100, 50)

    assert [usable_bytes(memory, Limits(memory=limit)) for limit in (None, 40, 400)] == [100, 40, 100]
    assert usable_bytes(Memory(0, 0), Limits(memory=7)) == 7


MEMINFO = {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\n"}


def test_free__of_the_machine(tmp_path: Path) -> None:
    """What is available of the whole; nothing where the kernel tells nothing."""
    assert free_share(Root(tmp_path)) is group_free(Root(tmp_path)) is None
    assert free_share(lay(tmp_path, MEMINFO)) == 0.4


def test_free__of_the_tightest_group(tmp_path: Path) -> None:
    """A group's limit counts where less of it is left; what the kernel can take back at once is not used."""
    files = {
        **MEMINFO,
        "proc/self/cgroup": "0::/box/inner\n",
        "sys/fs/cgroup/cgroup.controllers": "memory\n",
        "sys/fs/cgroup/box/memory.max": "1000\n",
        "sys/fs/cgroup/box/memory.high": "800\n",
        "sys/fs/cgroup/box/memory.current": "700\n",
        "sys/fs/cgroup/box/memory.stat": "anon 600\ninactive_file 60\nactive_file 40\n",
        "sys/fs/cgroup/box/inner/memory.max": "max\n",
        "sys/fs/cgroup/box/inner/memory.current": "700\n",
    }

    assert free_share(lay(tmp_path, files)) == pytest.approx(1 - 640 / 800)
    (tmp_path / "sys/fs/cgroup/box/memory.current").write_text("70\n")
    assert (free_share(Root(tmp_path)), group_free(Root(tmp_path))) == (0.4, pytest.approx(1 - 10 / 800))


def test_free__of_a_version_1_group(tmp_path: Path) -> None:
    """The older names; a group above its limit has nothing left."""
    files = {
        **MEMINFO,
        "proc/self/cgroup": "4:memory:/box\n",
        "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1500\n",
        "sys/fs/cgroup/memory/box/memory.stat": "total_inactive_file 300\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5000\n",
    }

    assert free_share(lay(tmp_path, files)) == 0.0


def test_free_share__is_a_share(tmp_path: Path) -> None:
    """More available than there is, as between two readings of a machine whose memory is unplugged, is all of it."""
    assert free_share(lay(tmp_path, {"proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 101 kB\n"})) == 1.0


def test_used__of_version_2(tmp_path: Path) -> None:
    """Each group on the way up that has a quota, by its own counter; one that counts nothing is left out."""
    files = {
        "proc/self/cgroup": "0::/box/inner/own\n",
        "sys/fs/cgroup/cgroup.controllers": "cpu\n",
        "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/box/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/box/inner/cpu.stat": "usage_usec 7\n",
        "sys/fs/cgroup/box/inner/own/cpu.max": "50000 100000\n",
    }

    assert used_quotas(lay(tmp_path, files)) == {"sys/fs/cgroup/box/cpu.stat": (1.5, 2.5)}
    more = {"sys/fs/cgroup/box/inner/own/cpu.stat": "usage_usec 1000000\n"}
    assert used_quotas(lay(tmp_path, more))["sys/fs/cgroup/box/inner/own/cpu.stat"] == (0.5, 1.0)


@pytest.mark.parametrize(
    ("groups", "counter"),
    [
        ("4:cpu,cpuacct:/box\n", "cpu,cpuacct/box"),
        ("4:cpuacct:/box\n1:cpu:/box\n0::/\n", "cpuacct/box"),
        ("4:cpuacct:/other\n1:cpu:/box\n0::/\n", None),
        ("1:cpu:/box\n", None),
    ],
)
def test_used__of_version_1(tmp_path: Path, groups: str, counter: str | None) -> None:
    """Another controller counts; what it counts of another group's processes is not taken for this one's."""
    mount = "cpu,cpuacct" if "cpu,cpuacct" in groups else "cpu"
    files = {
        "proc/self/cgroup": groups,
        f"sys/fs/cgroup/{mount}/box/cpu.cfs_quota_us": "20000\n",
        f"sys/fs/cgroup/{mount}/box/cpu.cfs_period_us": "100000\n",
        f"sys/fs/cgroup/{mount}/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpuacct/other/cpuacct.usage": "9000000000\n",
        f"sys/fs/cgroup/{counter or 'none'}/cpuacct.usage": "3500000000\n",
    }

    found = {} if counter is None else {f"sys/fs/cgroup/{counter}/cpuacct.usage": (0.2, 3.5)}
    assert used_quotas(lay(tmp_path, files)) == found


def test_used__of_controllers_whose_names_are_joined_otherwise(tmp_path: Path) -> None:
    """As Linux 3.10 has them: `cpuacct,cpu`, mounted as `cpu,cpuacct` and linked by each name."""
    files = {
        "proc/self/cgroup": "4:cpuacct,cpu:/box\n",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us": "20000\n",
        "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/box/cpuacct.usage": "3500000000\n",
    }
    root = lay(tmp_path, files)
    for name in ("cpu", "cpuacct"):
        (tmp_path / "sys/fs/cgroup" / name).symlink_to("cpu,cpuacct")
    assert used_quotas(root) == {"sys/fs/cgroup/cpuacct/box/cpuacct.usage": (0.2, 3.5)}
    assert read_limits(root).cpus == 0.2
