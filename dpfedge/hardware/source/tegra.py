# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Tegra: the device tree and `/etc/nv_tegra_release` in, the GPU inside and the L4T and JetPack releases out.

The release file's BOARD field names a family, not the chip; it is not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dpfedge.hardware.source.accelerator import Accelerator
from dpfedge.hardware.source.root import Root

__all__ = ["read_releases", "read_tegra"]

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
    """The GPU inside the chip that the device tree names."""
    for name in compatible:
        if name in _CHIPS:
            arch, title = _CHIPS[name]
            place = name.partition(",")[2]
            return (Accelerator("gpu.nvidia", f"NVIDIA {title}", place, arch, None, True, dict(releases)),)
    return ()
