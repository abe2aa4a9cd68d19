# SPDX-License-Identifier: Apache-2.0
"""The CPU of recorded machines and of this one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dpfedge.hardware.cpu import Cache, Cluster, read_cpu
from dpfedge.hardware.source.root import Root

Record = Callable[[str], Path]


@pytest.mark.parametrize(
    ("machine", "arch", "level", "model", "logical", "physical"),
    [
        ("orin", "aarch64", "armv8.2-a", "12× Cortex-A78AE", 12, 12),
        ("orin-nano", "aarch64", "armv8.2-a", "6× Cortex-A78AE", 6, 6),
        ("thor", "aarch64", "armv9.0-a", "14× Neoverse-V3AE", 14, 14),
        ("rk3588", "aarch64", "armv8.2-a", "4× Cortex-A76 + 4× Cortex-A55", 8, 8),
        ("imx95", "aarch64", "armv8.2-a", "6× Cortex-A55", 6, 6),
        ("h100", "x86_64", "x86-64-v4", "Intel(R) Xeon(R) Platinum 8480C", 8, 4),
        ("x86", "x86_64", "x86-64-v3", "Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz", 2, 2),
    ],
)
def test_cpu__of_boards(
    record: Record, machine: str, arch: str, level: str, model: str, logical: int, physical: int
) -> None:
    """Architecture, level, name and counts without a note."""
    cpu = read_cpu(Root(record(machine)))

    assert (cpu.arch, cpu.level, cpu.model, len(cpu.cores), cpu.physical) == (arch, level, model, logical, physical)
    assert cpu.notes == ()


@pytest.mark.parametrize(
    ("machine", "has", "lacks"),
    [
        ("orin", {"dotprod", "fp16", "int8_dot", "neon"}, {"i8mm", "sve", "bf16"}),
        ("thor", {"sve2", "bf16", "i8mm"}, {"sme"}),
        ("h100", {"avx512", "vnni", "amx_int8", "fp16"}, {"dotprod"}),
        ("x86", {"avx2", "fma"}, {"vnni", "int8_dot", "avx512"}),
        ("no-sys", {"neon"}, {"dotprod", "fp16"}),
    ],
)
def test_features__of_boards(record: Record, machine: str, has: set[str], lacks: set[str]) -> None:
    """The features that choose kernels."""
    features = read_cpu(Root(record(machine))).features

    assert has <= features
    assert not lacks & features


def test_clusters__fastest_first(record: Record) -> None:
    """Big cores come first, with the kernel's capacity; caches are those of the cluster's first core."""
    cpu = read_cpu(Root(record("rk3588")))

    assert cpu.clusters == (Cluster("Cortex-A76", (4, 5, 6, 7), 1024), Cluster("Cortex-A55", (0, 1, 2, 3), 414))
    assert cpu.caches == (
        Cache("Cortex-A76", 1, "data", 64 << 10, 1),
        Cache("Cortex-A76", 2, "unified", 512 << 10, 1),
        Cache("Cortex-A76", 3, "unified", 3 << 20, 8),
    )


def test_cpu__affinity_of_the_process(record: Record) -> None:
    """Cores outside the process's affinity are not allowed."""
    cpu = read_cpu(Root(record("x86")))

    assert (cpu.cores, cpu.allowed) == ((0, 1), (1,))


def test_cpu__hidden_sys(record: Record) -> None:
    """Without /sys the cores the process may use are counted, and that is said."""
    cpu = read_cpu(Root(record("no-sys")))

    assert (cpu.cores, cpu.level, cpu.model) == ((0, 1, 2), "armv8.0-a", "3× Cortex-A72")
    assert cpu.notes == ("/sys/devices/system/cpu is hidden; cores are counted from the cores this process may use",)


def test_cpu__foreign_cpuinfo(record: Record) -> None:
    """An emulator's host text is not believed: the auxiliary vector tells the features."""
    cpu = read_cpu(Root(record("foreign")))

    assert (cpu.arch, cpu.level, len(cpu.cores)) == ("aarch64", "armv8.2-a", 8)
    assert {"dotprod", "i8mm", "fp16"} <= cpu.features
    assert cpu.notes == ("/proc/cpuinfo is of x86_64, the machine is aarch64; features come from the auxiliary vector",)


def test_cpu__of_nothing(record: Record) -> None:
    """An empty root gives an unknown CPU with reasons, not an error."""
    cpu = read_cpu(Root(record("empty")))

    assert (cpu.arch, cpu.level, cpu.features, cpu.cores) == ("unknown", "unknown", frozenset(), (0,))
    assert cpu.notes == (
        "/proc/cpuinfo is missing; no feature is assumed",
        "/sys/devices/system/cpu is hidden; cores are counted from one core",
    )


def test_cpu__live_without_cpuinfo(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """A live machine still knows its architecture and its affinity, and claims only the lowest level."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "box", "6.1", "#1", "x86_64")))
    root = Root(record("empty"))
    root.live = True

    cpu = read_cpu(root)
    assert (cpu.arch, cpu.level, cpu.allowed) == ("x86_64", "x86-64-v1", tuple(sorted(os.sched_getaffinity(0))))


def test_midr__names_cores_when_cpuinfo_does_not(tmp_path: Path) -> None:
    """The identification registers in /sys stand in for a missing text."""
    for core, midr in enumerate((0x00000000411FD420, 0x00000000410FD830)):
        place = tmp_path / f"sys/devices/system/cpu/cpu{core}/regs/identification"
        place.mkdir(parents=True)
        (place / "midr_el1").write_text(f"{midr:#018x}\n")
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-1\n")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/arch").write_text("aarch64\n")

    assert {cluster.name for cluster in read_cpu(Root(tmp_path)).clusters} == {"Cortex-A78AE", "Neoverse-V3AE"}


def test_cpu__of_this_machine() -> None:
    """The real files of this machine are read: it has cores, a level, and its affinity."""
    cpu = read_cpu(Root())

    assert cpu.arch == os.uname().machine.replace("arm64", "aarch64")
    assert cpu.level != "unknown"
    assert set(cpu.allowed) <= set(cpu.cores)
