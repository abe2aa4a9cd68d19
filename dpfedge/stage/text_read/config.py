# SPDX-License-Identifier: Apache-2.0
"""The text reader's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dpfedge.config import check
from dpfedge.limits import KIB

__all__ = ["SCHEMA", "TextReadConfig"]

Send = Literal["change", "each", "end"]


@dataclass(frozen=True, slots=True)
class TextReadConfig:
    """Which words count, and when the running text is given on."""

    confidence: float = 0.5
    """Lines that are read less surely are left out; their number is told."""
    send: Send = "change"
    """The output `text`: `each` frame's, those that say something else than the last (`change`), or at the `end` every
    line of the whole request once, in the order they were first seen."""
    text_bytes: int = 16 * KIB
    """Most bytes of one text; what does not fit is left out and counted, whole lines at a time."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> TextReadConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage text-read")
        return cls(**data)


_DEFAULT = TextReadConfig()
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "default": _DEFAULT.confidence},
        "send": {"type": "string", "enum": ["change", "each", "end"], "default": _DEFAULT.send},
        "text_bytes": {"type": "integer", "minimum": 64, "maximum": 16 * KIB, "default": _DEFAULT.text_bytes},
    },
}
"""JSON Schema of the text reader's settings."""
