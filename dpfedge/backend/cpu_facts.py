# SPDX-License-Identifier: Apache-2.0
"""What a backend may know of the CPU: the root of a machine goes in, level, features, cores and memory come out.

It is the one door from plugins to `dpfedge.hardware`; it loads no native library and reads files only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpfedge.backend.known import machine_at
from dpfedge.hardware.source.accelerator import kernel_version

__all__ = ["CpuFacts", "cpu_facts"]


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
