# SPDX-License-Identifier: Apache-2.0
"""Power rails: the INA3221 and INA238 monitors of a board in sysfs in, the name and the watts of each rail out.

Channels that are wired to nothing (`NC`) and the INA3221's sum of its shunts are no rails. A rail that cannot be read
is None and is never counted as 0 W. What the whole board takes is one rail where the board has one, else their sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["Rail", "find_rails", "read_rail", "total_watts"]

_HWMON, _IIO = "sys/class/hwmon", "sys/bus/iio/devices"
_CHIPS = frozenset({"ina3221", "ina238"})
_LABEL = re.compile(r"in([0-9]{1,2})_label")
_OLD_LABEL = re.compile(r"rail_name_([0-9]{1,2})")  # JetPack 4 [jetson_stats: jtop/core/power.py]
_UNUSED = frozenset({"NC", ""})
_SUM = "7"  # the INA3221 driver's channel for the sum of shunt voltages [linux: drivers/hwmon/ina3221.c]
# the input of the whole board, where there is such a rail [jetson_stats: power.py; NVIDIA/skills: tegrastats-fields.md]
_TOTALS = ("VIN", "VDD_IN", "POM_5V_IN")
_CHIPS_MAX, _RAILS_MAX = 64, 64


@dataclass(frozen=True, slots=True)
class Rail:
    """One rail. `power` is a file in µW or, as JetPack 4 has it, in mW; without it watts are volts times amperes."""

    name: str
    power: str = ""
    volts: str = ""
    amperes: str = ""
    scale: float = 1e-6


def find_rails(root: Root) -> tuple[Rail, ...]:
    """Every rail of the monitors, in the order of chips and channels; none on a board without them."""
    chips = [f"{_HWMON}/{name}" for name in root.names(_HWMON)[:_CHIPS_MAX]]
    found = [rail for place in chips if root.text(f"{place}/name") in _CHIPS for rail in _rails(root, place)]
    return tuple((found or list(_old_rails(root)))[:_RAILS_MAX])


def _rails(root: Root, place: str) -> Iterator[Rail]:
    for file in root.names(place):
        match = _LABEL.fullmatch(file)
        name = label(root.text(f"{place}/{file}") or "") if match else ""
        if match is None or name in _UNUSED or (match[1] == _SUM and root.text(f"{place}/name") == "ina3221"):
            continue
        power, volts, amperes = (f"{place}/{kind}{match[1]}_input" for kind in ("power", "in", "curr"))
        yield Rail(name, power if root.has(power) else "", volts, amperes)


def _old_rails(root: Root) -> Iterator[Rail]:
    for device in root.names(_IIO)[:_CHIPS_MAX]:
        for file in root.names(f"{_IIO}/{device}"):
            match = _OLD_LABEL.fullmatch(file)
            name = label(root.text(f"{_IIO}/{device}/{file}") or "") if match else ""
            if match is not None and name not in _UNUSED:
                yield Rail(name, f"{_IIO}/{device}/in_power{match[1]}_input", scale=1e-3)


def read_rail(root: Root, rail: Rail) -> float | None:
    """Watts now; None for a rail whose files are gone, gated or hold no number."""
    if rail.power:
        told = root.number(rail.power)
        return None if told is None else told * rail.scale
    millivolts, milliamperes = root.number(rail.volts), root.number(rail.amperes)
    return None if millivolts is None or milliamperes is None else millivolts * milliamperes * 1e-6


def total_watts(root: Root, rails: Sequence[Rail], total: str = "") -> float | None:
    """What the board takes: the rail that `total` names or that measures a board's input, else the sum of all.

    None where one that it needs cannot be read: a sum without it would be too low.
    """
    names = {rail.name: rail for rail in rails}
    chosen = next((names[name] for name in (total, *_TOTALS) if name in names), None)
    if chosen is not None:
        return read_rail(root, chosen)
    read = [read_rail(root, rail) for rail in rails]
    known = [watts for watts in read if watts is not None]
    return sum(known) if known and len(known) == len(read) else None
