# SPDX-License-Identifier: Apache-2.0
"""An AMD GPU at work: the files of amdgpu below its PCI address in, load, memory, power, heat and errors of now out.

A file that is missing, empty, gated (EINVAL, EPERM while the GPU is reset) or says `N/A` is None: nothing is taken for
0. A partition has no files of its own: what is here is the whole GPU's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dpfedge.hardware.source.root import Root, label, whole
from dpfedge.hardware.source.thermal import PLAUSIBLE_C
from dpfedge.records import dataclass

__all__ = ["AmdPlaces", "AmdState", "find_amd", "read_amd_state"]

_PCI = "sys/bus/pci/devices"
_BLOCK = re.compile(r"[a-z0-9_]{2,24}_err_count|aca_[a-z0-9_]{2,24}")
_COUNT = re.compile(r"^(ue|ce): *([0-9]{1,18})\s*$", re.MULTILINE)
_BLOCKS_MAX = 48
_HOTTEST = ("junction", "edge", "mem")  # linux: Documentation/gpu/amdgpu/thermal.rst; the first that is there
# the power a card draws: averaged or instantaneous, whichever this part has, in µW
_POWERS = ("power1_average", "power1_input")


@dataclass(frozen=True, slots=True)
class AmdPlaces:
    """Where one GPU's files are."""

    device: str
    hwmon: str = ""
    heat: str = ""
    critical_c: float | None = None
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AmdState:
    """One moment of a whole GPU."""

    utilisation: float | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    watts: float | None = None
    temperature_c: float | None = None
    critical_c: float | None = None
    corrected: int | None = None
    """ECC and RAS errors since the driver was loaded, of every block; None where the part counts none."""
    uncorrected: int | None = None


def find_amd(root: Root, address: str) -> AmdPlaces:
    """The files of the GPU at `address` (`0000:05:00.0`), found once."""
    device = f"{_PCI}/{address}"
    hwmon = next((f"{device}/hwmon/{name}" for name in root.names(f"{device}/hwmon")), "")
    heat = _hottest(root, hwmon) if hwmon else ""
    critical = root.number(heat.replace("_input", "_crit")) if heat else None
    blocks = [f"{device}/ras/{name}" for name in root.names(f"{device}/ras") if _BLOCK.fullmatch(name)]
    return AmdPlaces(device, hwmon, heat, critical / 1000 if critical else None, tuple(blocks[:_BLOCKS_MAX]))


def _hottest(root: Root, hwmon: str) -> str:
    """The sensor nearest to the limit: the junction's where the part has one; sensors are told apart by label only."""
    files = [name for name in root.names(hwmon) if re.fullmatch(r"temp[0-9]{1,2}_input", name)]
    labels = {label(root.text(f"{hwmon}/{name.replace('input', 'label')}") or ""): name for name in files}
    chosen = next((labels[name] for name in _HOTTEST if name in labels), files[0] if files else "")
    return f"{hwmon}/{chosen}" if chosen else ""


def read_amd_state(root: Root, places: AmdPlaces) -> AmdState:
    """What is so now."""
    busy = root.number(f"{places.device}/gpu_busy_percent")
    counts = dict(_counts(root, places))
    return AmdState(
        utilisation=busy / 100 if busy is not None and 0 <= busy <= 100 else None,
        memory_total=root.number(f"{places.device}/mem_info_vram_total"),
        memory_used=root.number(f"{places.device}/mem_info_vram_used"),
        watts=_watts(root, places.hwmon),
        temperature_c=_celsius(root, places),
        critical_c=places.critical_c,
        corrected=counts.get("ce"),
        uncorrected=counts.get("ue"),
    )


def _watts(root: Root, hwmon: str) -> float | None:
    read = (root.number(f"{hwmon}/{name}") for name in _POWERS if hwmon)
    micro = next((value for value in read if value is not None), None)
    return None if micro is None or micro < 0 else micro * 1e-6


def _celsius(root: Root, places: AmdPlaces) -> float | None:
    milli = root.number(places.heat) if places.heat else None
    return None if milli is None or not PLAUSIBLE_C[0] <= milli / 1000 <= PLAUSIBLE_C[1] else milli / 1000


def _counts(root: Root, places: AmdPlaces) -> Iterator[tuple[str, int]]:
    """`ce` and `ue` over all blocks; a line that is none of them (`de`, deferred) is passed over."""
    found = [pair for block in places.blocks for pair in _COUNT.findall(root.text(block) or "")]
    for kind in ("ce", "ue"):
        numbers = [whole(count) or 0 for name, count in found if name == kind]
        if numbers:
            yield kind, sum(numbers)
