# SPDX-License-Identifier: Apache-2.0
"""How a stage's `sync` is written, for whoever checks a pipeline that may have none; join.py says what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import JOIN_DEPTH_MAX

__all__ = ["SCHEMA"]

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["lead"],
    "properties": {
        "lead": {"type": "string", "minLength": 1},
        "policy": {"enum": ["exact", "nearest", "latest"]},
        "tolerance": {"type": "string", "format": "duration", "examples": ["50ms"]},
        "depth": {"type": "integer", "minimum": 1, "maximum": JOIN_DEPTH_MAX},
    },
}
"""JSON Schema of `sync`. Without a policy it is `exact`, without a depth 4; `nearest` alone has a tolerance."""
