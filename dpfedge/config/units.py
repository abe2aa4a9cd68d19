# SPDX-License-Identifier: Apache-2.0
"""Text with a unit goes in, a number in one base unit comes out.

Every function raises ConfigError without a place, showing how to write it; a number without a unit is never taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from dpfedge.errors import ConfigError

__all__ = ["FORMATS", "bytes_per_second", "celsius", "duration_ms", "share", "size_bytes", "watts"]

_SIZES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_DURATIONS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "min": 6e4, "h": 3.6e6}
_RATES = {f"{unit}/s": factor for unit, factor in _SIZES.items()}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z°/%]*)")


def _quantity(text: object, units: Mapping[str, float], example: str) -> float:
    match = (
        _QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    )
    if match is None:
        raise ConfigError("a number with a unit is needed", found=repr(text), remedy=f"write it like {example}")
    number, unit = match.groups()
    if unit not in units:
        import difflib  # for the message alone

        what = f"unknown unit '{unit}'" if unit else "the unit is missing"
        folded = {known.lower(): known for known in units}
        close = folded.get(unit.lower()) or next(iter(difflib.get_close_matches(unit, units, 1, 0.4)), None)
        remedy = f"write {number}{close}" if unit and close else f"write it like {example}"
        raise ConfigError(what, found=repr(text), allowed=", ".join(units), remedy=remedy)
    return float(number) * units[unit]


def duration_ms(text: object) -> float:
    """Milliseconds of `30ms`, `1.5s`, `250us`, `2min` or `1h`."""
    return _quantity(text, _DURATIONS, "30ms")


def size_bytes(text: object) -> int:
    """Bytes of `64GiB` (1024³) or `64GB` (1000³)."""
    return round(_quantity(text, _SIZES, "64GiB"))


def bytes_per_second(text: object) -> int:
    """Bytes per second of `204.8GB/s`."""
    return round(_quantity(text, _RATES, "204.8GB/s"))


def watts(text: object) -> float:
    """Watts of `15W` or `500mW`."""
    return _quantity(text, {"W": 1.0, "mW": 1e-3}, "15W")


def celsius(text: object) -> float:
    """Degrees of `99.5C`."""
    return _quantity(text, {"C": 1.0}, "99C")


def share(text: object) -> float:
    """0 to 1 of `10%`."""
    found = _quantity(text, {"%": 0.01}, "10%")
    if found > 1:
        raise ConfigError("more than the whole", found=repr(text), allowed="0% to 100%")
    return found


FORMATS: Mapping[str, Callable[[object], object]] = {
    "size": size_bytes, "duration": duration_ms, "rate": bytes_per_second, "power": watts, "temperature": celsius,
    "share": share,
}  # fmt: skip
"""Values of the `format` keyword in a schema that `check` knows: text with a unit."""
