# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Tegra: the device tree and `/etc/nv_tegra_release` in; the GPU and DLAs inside, L4T and JetPack releases out.

The release file's BOARD field names a family, not the chip; it is not read. How many DLAs a module has stands in no
file that everybody may read: the module's part number tells, and a module that is not known shows none. The facts of
an accelerator here are `module` and, of a DLA, `core`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass

__all__ = ["Module", "find_module", "read_releases", "read_tegra"]

_RELEASE = re.compile(r"# R([0-9]{1,3}) \(release\), REVISION: ([0-9]{1,3}(?:\.[0-9]{1,3}){0,2})\b")
# jetson_stats: jtop/core/jetson_variables.py; NVIDIA/skills: tegrastats-fields.md
_JETPACK: Mapping[str, str] = {
    "39.2.0": "7.2", "38.4.0": "7.1", "38.2": "7.0", "36.5.0": "6.2.2", "36.4.7": "6.2.1", "36.4.4": "6.2.1",
    "36.4.3": "6.2", "36.4.0": "6.1", "36.3.0": "6.0",
}  # fmt: skip
_CHIPS: Mapping[str, tuple[str, str]] = {
    "nvidia,tegra210": ("sm_53", "Tegra X1"),
    "nvidia,tegra186": ("sm_62", "Tegra X2"),
    "nvidia,tegra194": ("sm_72", "Xavier"),
    "nvidia,tegra234": ("sm_87", "Orin"),
    "nvidia,tegra264": ("sm_110", "Thor"),
}
_DLAS: Mapping[str, str] = {"nvidia,tegra234": "nvdla2"}
"""Chip → the generation of its DLAs, under which TensorRT lists what layers they have."""
_PART = re.compile(r"(?:^nvidia,|\+)(p[0-9]{4}-[0-9]{4})(-super)?$")


@dataclass(frozen=True, slots=True)
class Module:
    """A Jetson's module, the part that carries the chip."""

    part: str
    """`p3767-0000`."""
    title: str
    dlas: int
    boosted: bool = False
    """Started in NVIDIA's "super" form, with higher clocks."""


# jetson_stats: jtop/core/jetson_variables.py; meta-tegra: conf/machine; DLAs: docs of each module, as boards/ has them
_MODULES: Mapping[str, tuple[str, int]] = {
    "p3834-0008": ("Thor T5000", 0), "p3834-0000": ("Thor T4000", 0),
    "p3701-0000": ("AGX Orin", 2), "p3701-0002": ("IGX Orin", 2), "p3701-0004": ("AGX Orin 32GB", 2),
    "p3701-0005": ("AGX Orin 64GB", 2), "p3701-0008": ("AGX Orin Industrial", 2),
    "p3767-0000": ("Orin NX 16GB", 2), "p3767-0001": ("Orin NX 8GB", 1), "p3767-0003": ("Orin Nano 8GB", 0),
    "p3767-0004": ("Orin Nano 4GB", 0), "p3767-0005": ("Orin Nano developer kit", 0),
}  # fmt: skip


def find_module(compatible: Sequence[str]) -> Module | None:
    """The module among the device tree's names, whatever carrier's name stands before it; None when none is known."""
    found = [match for name in compatible if (match := _PART.search(name)) and match[1] in _MODULES]
    boosted = any(match[2] for match in found)
    for match in found:
        title, dlas = _MODULES[match[1]]
        return Module(match[1], title, dlas, boosted)
    return None


def read_releases(root: Root, compatible: Sequence[str]) -> dict[str, str]:
    """`l4t` and, where it is known for that release, `jetpack`, of a Tegra machine."""
    if not any(name in _CHIPS for name in compatible):
        return {}
    match = _RELEASE.search(root.text("etc/nv_tegra_release") or "")
    if match is None:
        return {}
    l4t = f"{match[1]}.{match[2]}"
    jetpack = _JETPACK.get(l4t) or _JETPACK.get(l4t.rpartition(".")[0])
    return {"l4t": l4t} if jetpack is None else {"l4t": l4t, "jetpack": jetpack}


def read_tegra(compatible: Sequence[str], releases: Mapping[str, str]) -> tuple[Accelerator, ...]:
    """The GPU inside the chip that the device tree names, and then its DLAs."""
    for name in compatible:
        if name in _CHIPS:
            return tuple(_inside(name, find_module(compatible), releases))
    return ()


def _inside(chip: str, module: Module | None, releases: Mapping[str, str]) -> Iterator[Accelerator]:
    arch, title = _CHIPS[chip]
    facts: dict[str, Any] = {} if module is None else {"module": module.title + (" super" if module.boosted else "")}
    place = chip.partition(",")[2]
    yield Accelerator("gpu.nvidia", f"NVIDIA {title}", place, arch, None, True, dict(releases), facts=facts)
    for core in range(module.dlas if module is not None else 0):
        name, facts = f"NVIDIA {title} DLA", {**facts, "core": core}
        yield Accelerator("dla.nvidia", name, f"nvdla{core}", _DLAS[chip], None, True, dict(releases), facts=facts)
