# SPDX-License-Identifier: Apache-2.0
"""How a degrade ladder is written down, for whoever checks a pipeline that may have none; LADDER.md explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import LADDER_STEPS_MAX

__all__ = ["BOUNDS", "SCHEMA"]

BOUNDS: Mapping[str, Mapping[str, Any]] = {
    "temperature": {"type": "string", "format": "temperature", "examples": ["85C"]},
    "headroom": {"type": "string", "format": "temperature", "examples": ["10C"]},
    "memory_free": {"type": "string", "format": "share", "examples": ["10%"]},
}
"""Conditions that are a value with a bound."""
_MODES = {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1, "maxLength": 64}}

SCHEMA: Mapping[str, Any] = {
    "type": "array",
    "minItems": 1,
    "maxItems": LADDER_STEPS_MAX,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["when", "set"],
        "properties": {
            "name": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,31}$", "examples": ["warm"]},
            "when": {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {**BOUNDS, "power_mode": _MODES},
            },
            "until": {"type": "object", "additionalProperties": False, "properties": BOUNDS},
            "hold": {"type": "string", "format": "duration", "examples": ["10s"]},
            "set": {
                "type": "object",
                "minProperties": 1,
                "additionalProperties": {
                    "type": "object",
                    "minProperties": 1,
                    "properties": {"model": {"type": "string", "minLength": 1}},
                },
            },
            "optional": {"type": "boolean"},
        },
    },
}
"""JSON Schema of the section. Without a `name` a step is called by its number; without `hold` it is 5s."""
