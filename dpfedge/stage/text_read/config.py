# SPDX-License-Identifier: Apache-2.0
"""The text reader's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from dpfedge.config import check
from dpfedge.limits import KIB
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

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


_BOUNDS: Mapping[str, Any] = {
    "confidence": (0, 1),
    "send": {"enum": list(get_args(Send))},
    "text_bytes": (64, 16 * KIB),
}
SCHEMA: Mapping[str, Any] = schema_of(TextReadConfig(), _BOUNDS)
"""JSON Schema of the text reader's settings."""
