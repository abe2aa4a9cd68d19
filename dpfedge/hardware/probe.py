# SPDX-License-Identifier: Apache-2.0
"""What a machine is: its root directory goes in, a `Machine` comes out.

It reads files only: no process is started, no socket opened, no driver or native library loaded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from dpfedge.hardware.accelerators import Accelerator, kernel_release, read_accelerators
from dpfedge.hardware.cpu import Cpu, read_cpu
from dpfedge.hardware.source.cpuinfo import read_auxv
from dpfedge.hardware.source.devicetree import DeviceTree, read_device_tree, read_dmi
from dpfedge.hardware.source.memory import Limits, Memory, read_limits, read_memory, usable_bytes
from dpfedge.hardware.source.pci import PciDevice, read_pci
from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass

__all__ = ["Machine", "probe", "probe_root"]

_PAGE = re.compile(r"^KernelPageSize:\s*([0-9]{1,6}) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine as its files describe it."""

    cpu: Cpu
    memory: Memory
    limits: Limits
    page_bytes: int
    """0 when the files do not tell."""
    kernel: str
    device_tree: DeviceTree | None
    dmi: Mapping[str, str]
    displays: tuple[PciDevice, ...]
    """Display controllers and accelerators on the PCI bus."""
    accelerators: tuple[Accelerator, ...]
    """GPUs and the like, on the bus or inside the chip, with their drivers."""
    sysroot: str
    notes: tuple[str, ...]
    """What was hidden or contradictory, and what was taken instead."""

    @property
    def arch(self) -> str:
        """`x86_64`, `aarch64`, or the kernel's word for another one."""
        return self.cpu.arch

    @property
    def compatible(self) -> tuple[str, ...]:
        """The device tree's compatible names, none without a device tree."""
        return self.device_tree.compatible if self.device_tree is not None else ()

    @property
    def usable_bytes(self) -> int:
        """Bytes of memory one process may use at most."""
        return usable_bytes(self.memory, self.limits)

    @property
    def usable_cores(self) -> float:
        """Cores' worth of time this process may use: affinity, or less where a cgroup says so."""
        allowed = float(len(self.cpu.allowed))
        return allowed if self.limits.cpus is None else min(allowed, self.limits.cpus)

    def describe(self) -> str:
        """One line that lets a person recognise the machine."""
        tree = self.device_tree
        names = [f"device tree {' '.join(tree.compatible)}" if tree else "no device tree", self.arch]
        names.append(f"CPU {self.cpu.model}" if self.cpu.model else "unknown CPU")
        if product := " ".join(self.dmi[key] for key in ("vendor", "product") if key in self.dmi):
            names.append(f"DMI name {product}")
        names += [f"{device.name} ({device.id})" for device in self.displays] or ["no PCI display device"]
        return ", ".join(names)


def probe(sysroot: str | Path = "/") -> Machine:
    """The machine below `sysroot`; `/` is this one. Never fails: `notes` says what could not be found out."""
    return probe_root(Root(sysroot))


def probe_root(root: Root) -> Machine:
    """The machine whose files `root` reads."""
    cpu, memory = read_cpu(root), read_memory(root)
    kernel = kernel_release(root)
    tree, displays = read_device_tree(root), read_pci(root)
    machine = Machine(
        cpu=cpu,
        memory=memory,
        limits=read_limits(root),
        page_bytes=_page_bytes(root),
        kernel=kernel,
        device_tree=tree,
        dmi=read_dmi(root),
        displays=displays,
        accelerators=read_accelerators(root, tree.compatible if tree else (), displays, kernel),
        sysroot=root.path,
        notes=cpu.notes if memory.total else (*cpu.notes, "/proc/meminfo does not tell the memory"),
    )
    skipped = [f"/{path} was not used: {reason}" for path, reason in root.unreadable.items() if path != "proc/cpuinfo"]
    return replace(machine, notes=(*machine.notes, *skipped))


def _page_bytes(root: Root) -> int:
    if root.live:
        return os.sysconf("SC_PAGE_SIZE")
    _, page = read_auxv(root)
    match = _PAGE.search(root.text("proc/self/smaps") or "")
    return page or (int(match[1]) * 1024 if match else 0)
