# SPDX-License-Identifier: Apache-2.0
"""Configuration files: strict YAML with places, units, and the check against a JSON Schema."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.config.places import Items, Section, plain
    from dpfedge.config.reader import load_key, load_yaml, parse_yaml
    from dpfedge.config.schema import check, nearest
    from dpfedge.config.units import FORMATS, bytes_per_second, celsius, duration_ms, share, size_bytes, watts

__all__ = [
    "FORMATS",
    "Items",
    "Section",
    "bytes_per_second",
    "celsius",
    "check",
    "duration_ms",
    "load_key",
    "load_yaml",
    "nearest",
    "parse_yaml",
    "plain",
    "share",
    "size_bytes",
    "watts",
]

_HOMES = {
    **dict.fromkeys(("Items", "Section", "plain"), "places"),
    **dict.fromkeys(("load_key", "load_yaml", "parse_yaml"), "reader"),
    **dict.fromkeys(("check", "nearest"), "schema"),
    **dict.fromkeys(("FORMATS", "bytes_per_second", "celsius", "duration_ms", "share", "size_bytes", "watts"), "units"),
}


def __getattr__(name: str) -> Any:
    # who needs units only does not pay for a YAML reader
    if name in _HOMES:
        return getattr(importlib.import_module(f"dpfedge.config.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
