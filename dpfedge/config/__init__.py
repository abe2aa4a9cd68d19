# SPDX-License-Identifier: Apache-2.0
"""Configuration files: strict YAML with places, units, and the check against a JSON Schema."""

from __future__ import annotations

from dpfedge.config.reader import Items, Section, load_key, load_yaml, parse_yaml, plain
from dpfedge.config.schema import check, nearest
from dpfedge.config.units import FORMATS, bytes_per_second, celsius, duration_ms, size_bytes, watts

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
    "size_bytes",
    "watts",
]
