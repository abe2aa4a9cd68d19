# SPDX-License-Identifier: Apache-2.0
"""What a backend may know of the CPU: the root of a machine goes in, level, features, cores and memory come out.

It is the one door from plugins to `dpfedge.hardware`; it loads no native library and reads files only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from dpfedge.backend.known import machine_at
from dpfedge.hardware.architecture import HWCAPS
from dpfedge.hardware.source.accelerator import kernel_version
from dpfedge.hardware.source.cpuinfo import read_auxv, read_cpuinfo
from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass

__all__ = ["CpuFacts", "cpu_facts", "false_text"]

_INSTRUCTIONS = frozenset(word for words in HWCAPS.values() for word in words) - {"evtstrm", "cpuid"}


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """The CPU of one machine as far as a backend needs it."""

    arch: str
    """`x86_64`, `aarch64`."""
    model: str
    level: str
    """`x86-64-v3`, `armv8.2-a`."""
    features: frozenset[str]
    """dpfedge's names, see `dpfedge.hardware.architecture.FEATURES`."""
    cores: int
    """Logical cores this process may run on."""
    memory_bytes: int
    """What one process may use at most: main memory, or less where a cgroup says so; 0 when unknown."""
    drivers: Mapping[str, str] = field(default_factory=dict)
    """`kernel`: its version as numbers, for the driver ranges of whitelists; empty when unknown."""


def cpu_facts(sysroot: str | Path = "/") -> CpuFacts:
    """Facts of the machine below `sysroot`; `/` is this one."""
    machine = machine_at(sysroot)
    cpu, kernel = machine.cpu, kernel_version(machine.kernel)
    drivers = {} if kernel is None else {"kernel": kernel}
    return CpuFacts(cpu.arch, cpu.model, cpu.level, cpu.features, len(cpu.allowed), machine.usable_bytes, drivers)


def false_text(arch: str, sysroot: str | Path = "/") -> str | None:
    """What `/proc/cpuinfo` says that is not true of the CPU; None where libraries may go by it.

    On aarch64 onnxruntime chooses its instructions by that text (with `/sys` beside it; without, it takes the least),
    and a wrong one ends the process by SIGILL or SIGSEGV. Emulators and sandboxes show such texts, kernels do not.
    """
    root = Root(sysroot)
    info = read_cpuinfo(root)
    if arch != "aarch64" or info is None or not root.names("sys/devices/system/cpu"):
        return None
    if info.arch != arch:
        return f"it describes {info.arch or 'no known architecture'}"
    promised, _ = read_auxv(root)
    more = (info.words & _INSTRUCTIONS) - promised if promised else frozenset()
    return f"it has instructions that the kernel does not promise: {' '.join(sorted(more))}" if more else None
