# SPDX-License-Identifier: Apache-2.0
"""The record of one accelerator as the kernel's files describe it, and the kernel's own version.

Whether software for the accelerator is installed is not known here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["Accelerator", "kernel_release", "kernel_version"]

_KERNEL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9}){1,3}")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU or another processor beside the CPU."""

    kind: str
    """Device class, as in whitelists: `gpu.nvidia`, `gpu.amd`, `gpu.arm`, `gpu.qualcomm`, `dla.nvidia`."""
    name: str
    place: str
    """Where it is: a PCI address, or the name of what reported it (`mali0`, `tegra234`)."""
    arch: str | None = None
    """`sm_90`, `gfx942`, `mali-g610`; None when the files do not tell."""
    memory_bytes: int | None = None
    """Memory of its own; None where it shares the machine's or the files do not tell."""
    unified_memory: bool = False
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Driver → version as numbers joined by dots, as far as one is loaded."""
    parts: tuple[str, ...] = ()
    """Instances it is split into (`gi3/ci0` of NVIDIA's MIG, `partition 1` of AMD); none when it is whole."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What only its own backend needs to know; the module that reads it says what."""


def kernel_release(root: Root) -> str:
    """The kernel's own word for its release; `unknown` when the files do not tell."""
    return label(root.text("proc/sys/kernel/osrelease") or (os.uname().release if root.live else "unknown"))


def kernel_version(release: str) -> str | None:
    """`6.8.0` of `6.8.0-60-generic`: the version of drivers that come with the kernel."""
    match = _KERNEL.match(release)
    return match[0] if match else None
