# SPDX-License-Identifier: Apache-2.0
"""Every accelerator of a machine, whoever made it: files below a root in, one record for each out.

It says what the hardware is, with or without a backend for it. No driver is opened and no library loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dpfedge.hardware.source.accelerator import Accelerator, kernel_release, kernel_version
from dpfedge.hardware.source.amdgpu import read_amd
from dpfedge.hardware.source.mali import read_adreno, read_mali
from dpfedge.hardware.source.nvidia import read_nvidia
from dpfedge.hardware.source.pci import PciDevice
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.tegra import read_releases, read_tegra

__all__ = ["Accelerator", "kernel_release", "read_accelerators"]


def read_accelerators(
    root: Root, compatible: Sequence[str], displays: Sequence[PciDevice], kernel: str
) -> tuple[Accelerator, ...]:
    """Accelerators by PCI address, then those inside the chip; `kernel` is the kernel's release."""
    version = kernel_version(kernel)
    nvidia, amd = read_nvidia(root, displays), read_amd(root, displays, version)
    if not compatible:
        return (*nvidia, *amd)
    releases = read_releases(root, compatible)
    tegra = read_tegra(compatible, releases)
    if any(gpu.arch == inside.arch for gpu in nvidia for inside in tegra):
        # Thor's own GPU is also a PCI function; a card in a slot has another code target
        nvidia = tuple(_with_releases(gpu, tegra[0]) for gpu in nvidia)
        tegra = tegra[1:]
    return (*nvidia, *amd, *tegra, *read_mali(root, compatible, version), *read_adreno(root))


def _with_releases(gpu: Accelerator, inside: Accelerator) -> Accelerator:
    if gpu.arch != inside.arch:
        return gpu
    return replace(gpu, drivers={**gpu.drivers, **inside.drivers}, facts={**gpu.facts, **inside.facts})
