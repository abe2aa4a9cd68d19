# SPDX-License-Identifier: Apache-2.0
"""The GPU inside a Tegra at work: its folders in sysfs in, load and clock of this moment out.

Thor's GPU is nvidia.ko's, which has no load file: there the load is None, and NVML tells it. Nothing is set.
"""

from __future__ import annotations

from dpfedge.hardware.source.root import Root
from dpfedge.records import dataclass

__all__ = ["GpuPlaces", "find_gpu", "read_clock", "read_load"]

_DEVFREQ = "sys/class/devfreq"
# jetson_stats: jtop/core/gpu.py (names of the device tree's node), thor_gpu.py (Thor's entry has no such node)
_NODES = frozenset({"gv11b", "gp10b", "ga10b", "gb10b", "gpu"})
_THOR = "gpu-gpc-0"
_LOADS = (
    "sys/devices/platform/bus@0/17000000.gpu/load", "sys/devices/platform/17000000.gpu/load",
    "sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load",
)  # fmt: skip
_FULL = 1000  # the file counts per mille


@dataclass(frozen=True, slots=True)
class GpuPlaces:
    """Where the GPU's files are; empty where there is none."""

    load: str = ""
    clock: str = ""


def find_gpu(root: Root) -> GpuPlaces:
    """The devfreq entry of the GPU, by its device tree node and not by its address, and the load file beside it."""
    entry = next((name for name in root.names(_DEVFREQ) if _is_gpu(root, name)), "")
    loads = (f"{_DEVFREQ}/{entry}/device/load", *_LOADS) if entry else _LOADS
    return GpuPlaces(next(filter(root.has, loads), ""), f"{_DEVFREQ}/{entry}/cur_freq" if entry else "")


def _is_gpu(root: Root, name: str) -> bool:
    return name == _THOR or (root.text(f"{_DEVFREQ}/{name}/device/of_node/name") or "") in _NODES


def read_load(root: Root, places: GpuPlaces) -> float | None:
    """Busy share since the file was last read, 0 to 1; None where no file tells, or it is gated (EAGAIN, EINVAL)."""
    mille = root.number(places.load) if places.load else None
    return None if mille is None or not 0 <= mille <= _FULL else mille / _FULL


def read_clock(root: Root, places: GpuPlaces) -> int | None:
    """The GPU's clock now, in Hz; None where no file tells."""
    hertz = root.number(places.clock) if places.clock else None
    return hertz if hertz is not None and hertz >= 0 else None
