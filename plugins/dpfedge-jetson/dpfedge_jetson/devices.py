# SPDX-License-Identifier: Apache-2.0
"""The GPU and the DLAs inside a Tegra as devices: a machine's files in, `jetson:0`, `jetson:dla0` and on out.

Boards are told apart by any entry of the device tree's list, whatever carrier's name stands first. Memory is the
machine's, which CPU, GPU and DLAs share. No library is loaded; rights are looked at on this machine only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfedge.backend.accelerators import Accelerator, accelerators
from dpfedge.backend.api import Device
from dpfedge.backend.cpu_facts import cpu_facts
from dpfedge.errors import BackendError, Unavailable

__all__ = ["ARCHS", "DLA_ARCHS", "WHERE", "find_devices", "named"]

WHERE = "backend jetson"
_ORIN = frozenset({"fp16", "int8", "bf16", "tf32"})
ARCHS: Mapping[str, frozenset[str]] = {"sm_87": _ORIN, "sm_110": _ORIN | {"fp8", "fp4"}}
"""Code target of the GPUs this backend is for, Orin and Thor → formats they multiply in."""
DLA_ARCHS: Mapping[str, frozenset[str]] = {"nvdla2": frozenset({"fp16", "int8"})}
"""Generation of a DLA → formats it computes in; there are no others."""
_NODES = ("nvmap", "nvhost-gpu", "nvhost-ctrl-gpu", "nvidiactl", "nvidia0")
_DEV = Path("/dev")


def find_devices(sysroot: Path, backend: str = "jetson") -> Sequence[Device]:
    """Devices below `sysroot`; none on a machine without an Orin or Thor.

    Unavailable on this machine: the driver's nodes are missing, or this user may not open them.
    """
    found = [one for one in accelerators(sysroot) if _is_mine(one)]
    if found and os.path.realpath(sysroot) == "/":
        _check_nodes(_DEV)
    if not found:
        return []
    memory = cpu_facts(sysroot).memory_bytes
    return [_device(one, memory, backend) for one in found]


def _is_mine(one: Accelerator) -> bool:
    """Not a card in a slot: that is backend cuda's, also where it is plugged into a Jetson."""
    if one.kind == "dla.nvidia":
        return one.arch in DLA_ARCHS
    return one.kind == "gpu.nvidia" and one.arch in ARCHS


def _device(one: Accelerator, memory: int, backend: str) -> Device:
    core = one.facts.get("core")
    formats = ARCHS[str(one.arch)] if core is None else DLA_ARCHS[str(one.arch)]
    facts: dict[str, Any] = dict(one.facts)
    if ":" in one.place:  # Thor's GPU is a PCI function, Orin's is none
        facts["pci"] = one.place
    return Device(
        id=f"{backend}:0" if core is None else f"{backend}:dla{core}",
        backend=backend,
        kind=one.kind,
        name=one.name if core is None else f"{one.name} {core}",
        arch=str(one.arch),
        features=formats | {"unified_memory"},
        memory_bytes=memory,
        unified_memory=True,
        facts=facts,
        drivers=dict(one.drivers),
    )


def _check_nodes(folder: Path) -> None:
    nodes = [folder / name for name in _NODES if (folder / name).exists()]
    if not nodes:
        raise Unavailable(
            "the GPU's driver is not here", where=WHERE, found=f"none of {', '.join(_NODES)} in {folder}",
            remedy="install JetPack (L4T); in a container use the NVIDIA runtime",
        )  # fmt: skip
    for node in nodes:
        if not os.access(node, os.R_OK | os.W_OK):
            raise Unavailable(
                "the device node may not be opened by this user", where=WHERE, found=os.fspath(node),
                remedy="join its group (`video` on JetPack): `dpfedge doctor --backend jetson` names it",
            )  # fmt: skip


@contextmanager
def named() -> Iterator[None]:
    """Errors of what is shared with backend cuda name this backend."""
    try:
        yield
    except BackendError as error:
        if (error.where or "").startswith("backend cuda"):
            error.remedy = error.remedy and error.remedy.replace("--backend cuda", "--backend jetson")
            raise error.at(str(error.where).replace("backend cuda", WHERE, 1)) from error.__cause__
        raise
