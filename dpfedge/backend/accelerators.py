# SPDX-License-Identifier: Apache-2.0
"""What a backend may know of GPUs before it loads a driver: the root of a machine goes in, accelerators come out.

Beside `cpu_facts` it is a door from plugins to `dpfedge.hardware`; it loads no native library and reads files only.
"""

from __future__ import annotations

from pathlib import Path

from dpfedge.backend.known import machine_at
from dpfedge.hardware.accelerators import Accelerator

__all__ = ["Accelerator", "accelerators"]


def accelerators(sysroot: str | Path = "/") -> tuple[Accelerator, ...]:
    """Accelerators of the machine below `sysroot`, with the drivers that whitelists may name; `/` is this one."""
    return machine_at(sysroot).accelerators
