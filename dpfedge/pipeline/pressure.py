# SPDX-License-Identifier: Apache-2.0
"""What presses a machine right now: heat, memory and power mode; its files in, one record of a moment out.

It reads files only, of `/` or of a folder that stands for it, and decides nothing: `ladder.py` does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from dpfedge.config import celsius
from dpfedge.errors import UsageError
from dpfedge.hardware.source.memory import free_share
from dpfedge.hardware.source.powermode import read_power_mode, read_power_modes
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.thermal import Zone, read_zone, read_zones
from dpfedge.records import dataclass

__all__ = ["VARIABLE", "Pressure", "Sensors", "Thermals", "sample_pressure", "sensor_root"]

VARIABLE = "DPFEDGE_SENSORS"


@dataclass(frozen=True, slots=True)
class Pressure:
    """One moment. What no sensor tells is None."""

    temperature_c: float | None = None
    """Of the zone that has the least left until it throttles; of the hottest where no zone says when."""
    memory_free: float | None = None
    """0 to 1, of the machine's memory or of the tightest cgroup's."""
    power_mode: str | None = None
    headroom_c: float | None = None
    """What is left until that zone throttles; below 0 it does."""
    zone: str = ""

    def figures(self) -> dict[str, Any]:
        """As plain data with units in the keys."""
        return {
            "temperature_c": self.temperature_c, "headroom_c": self.headroom_c, "zone": self.zone or None,
            "memory_free": None if self.memory_free is None else round(self.memory_free, 4),
            "power_mode": self.power_mode,
        }  # fmt: skip


class Thermals(Protocol):
    """What a board says of its zones; `Board.thermal` of a `hardware.Board`."""

    @property
    def thermal(self) -> Mapping[str, Any]:
        """`zones` that count, and `throttle`, both as far as given."""


class Sensors:
    """The sensors of one machine, found once, read at every `sample`."""

    def __init__(self, root: Root, board: Thermals | None = None) -> None:
        """A board that names its zones is believed: others are of something else, such as a radio's. One whose zones
        are all missing here gets every zone there is."""
        self._root, thermal = root, {} if board is None else board.thermal
        self._throttle_c = celsius(thermal["throttle"]) if "throttle" in thermal else None
        self._zones = read_zones(root, thermal.get("zones", ())) or read_zones(root)
        self._modes = read_power_modes(root)

    @property
    def names(self) -> frozenset[str]:
        """Which fields of a sample can have a value; a gated zone is one that can."""
        now = self.sample()
        found = {name for name in ("memory_free", "power_mode") if getattr(now, name) is not None}
        found |= {"temperature"} if self._zones else set()
        return frozenset(found | ({"headroom"} if any(map(self._throttle_of, self._zones)) else set()))

    @property
    def power_modes(self) -> tuple[str, ...]:
        """The names a power mode can have; none where nobody lists them."""
        return self._modes.names

    def sample(self) -> Pressure:
        """What is so now."""
        temperature, headroom, zone = self._hottest()
        return Pressure(temperature, free_share(self._root), read_power_mode(self._root, self._modes), headroom, zone)

    def _hottest(self) -> tuple[float | None, float | None, str]:
        read = [(zone, now) for zone in self._zones if (now := read_zone(self._root, zone)) is not None]
        left = [(limit - now, zone, now) for zone, now in read if (limit := self._throttle_of(zone)) is not None]
        if left:
            headroom, zone, now = min(left, key=lambda row: row[0])
            return now, round(headroom, 3), zone.name
        if read:
            zone, now = max(read, key=lambda row: row[1])
            return now, None, zone.name
        return None, None, ""

    def _throttle_of(self, zone: Zone) -> float | None:
        return self._throttle_c if zone.throttle_c is None else zone.throttle_c


def sample_pressure(sysroot: str | Path = "/", board: Thermals | None = None) -> Pressure:
    """What presses the machine below `sysroot` now; whoever asks often keeps its `Sensors`."""
    return Sensors(Root(sysroot), board).sample()


def sensor_root() -> Root:
    """`/`, or the folder that $DPFEDGE_SENSORS names, below which a container sees the host's `/sys` and `/proc`."""
    folder = os.environ.get(VARIABLE, "/")
    if not Path(folder).is_dir():
        remedy = "name the folder below which sys/class/thermal and proc/meminfo are"
        raise UsageError("no such folder", where=f"${VARIABLE}", found=folder, remedy=remedy)
    return Root(folder)
