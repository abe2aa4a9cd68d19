# SPDX-License-Identifier: Apache-2.0
"""Thermal zones of the kernel: `/sys/class/thermal` in, temperatures and where throttling begins in °C out.

A sensor that lies is not believed: one that shows what no running machine can have, and the Jetson's `PMIC-Die`, which
reads 100 °C whatever the weather. Sensors of PCI cards (NVML, amdgpu's hwmon) are not among the zones and not read.
Whether a Tegra throttles now its `…-throttle-alert` cooling devices tell; a fan that runs is no throttling.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["PLAUSIBLE_C", "Zone", "find_alerts", "read_zone", "read_zones", "throttling"]

PLAUSIBLE_C = (-40.0, 150.0)
"""What a sensor of a chip can measure at all; gated and broken ones show −274 or 255."""

_CLASS = "sys/class/thermal"
_ZONE = re.compile(r"thermal_zone[0-9]{1,4}")
_TRIP = re.compile(r"trip_point_[0-9]{1,3}_type")
_COOLING = re.compile(r"cooling_device[0-9]{1,4}")
_ALERT = "-throttle-alert"  # `cpu-`, `gpu-`, `soc012-`…, of NVIDIA's kernels
_ZONES_MAX = 64
_TRIPS_MAX = 16  # of a zone; the kernel's device trees have up to 8
_TRIPS_C = (40.0, 150.0)  # disabled trip points show 0 or −274
_CONSTANT = frozenset({"PMIC-Die"})  # 100.0 °C on every Nano, TX2 and Xavier


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone. `throttle_c`: its lowest passive trip point, at which the kernel may begin to throttle."""

    place: str
    name: str
    throttle_c: float | None = None
    critical_c: float | None = None
    """At which the kernel switches the machine off."""

    @property
    def number(self) -> str:
        """The zone's own number; names are not unique."""
        return self.place.rpartition("thermal_zone")[2]


def read_zones(root: Root, wanted: Collection[str] = ()) -> tuple[Zone, ...]:
    """Every zone, or those whose type is wanted, in the kernel's order; a gated one is among them."""
    places = [name for name in root.names(_CLASS) if _ZONE.fullmatch(name)]
    places.sort(key=lambda name: int(name.removeprefix("thermal_zone")))
    found = [_zone(root, f"{_CLASS}/{name}") for name in places[:_ZONES_MAX]]
    return tuple(zone for zone in found if zone.name not in _CONSTANT and (not wanted or zone.name in wanted))


def read_zone(root: Root, zone: Zone) -> float | None:
    """The zone's temperature now; None for one that is gated (EAGAIN: its part of the chip idles), gone or lies."""
    milli = root.number(f"{zone.place}/temp")
    if milli is None:
        return None
    celsius = milli / 1000
    # above its critical trip point the kernel would have switched the machine off
    highest = PLAUSIBLE_C[1] if zone.critical_c is None else zone.critical_c
    return celsius if PLAUSIBLE_C[0] <= celsius <= highest else None


def find_alerts(root: Root) -> tuple[str, ...]:
    """Folders of the cooling devices that stand for throttling."""
    places = [f"{_CLASS}/{name}" for name in root.names(_CLASS) if _COOLING.fullmatch(name)]
    return tuple(place for place in places if (root.text(f"{place}/type") or "").endswith(_ALERT))


def throttling(root: Root, alerts: Collection[str]) -> bool:
    """Whether one of `find_alerts` is on now."""
    return any((root.number(f"{place}/cur_state") or 0) > 0 for place in alerts)


def _zone(root: Root, place: str) -> Zone:
    name = label(root.text(f"{place}/type") or "") or place.rpartition("/")[2]
    trips: dict[str, list[float]] = {"passive": [], "critical": []}
    for file in [name for name in root.names(place) if _TRIP.fullmatch(name)][:_TRIPS_MAX]:
        kind, milli = root.text(f"{place}/{file}"), root.number(f"{place}/{file.removesuffix('type')}temp")
        if kind in trips and milli is not None and _TRIPS_C[0] <= milli / 1000 <= _TRIPS_C[1]:
            trips[kind].append(milli / 1000)
    return Zone(place, name, min(trips["passive"], default=None), min(trips["critical"], default=None))
