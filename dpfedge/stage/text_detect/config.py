# SPDX-License-Identifier: Apache-2.0
"""The text detector's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.config import check
from dpfedge.limits import FRAME_MAX_SIDE, LINES_MAX, LINES_MAX_COLUMNS
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

__all__ = ["LIVE", "SCHEMA", "TextDetectConfig"]

LIVE = ("side_max",)
"""Settings that may change while frames flow: how much of a frame the model sees, and so what it costs."""


@dataclass(frozen=True, slots=True)
class TextDetectConfig:
    """What is taken for text, and how much of it one message holds; the thresholds are PP-OCRv6's own."""

    side_max: int = 960
    """Pixels of the longer side that the model sees at most; larger frames are shrunk for it, lines are not."""
    threshold: float = 0.3
    """A pixel of the map above this is inside a line."""
    box_threshold: float = 0.5
    """A box whose pixels are less sure on average is none."""
    unclip: float = 1.6
    """How far a box grows from the drawn-in text the model sees, in area over perimeter."""
    lines: int = 64
    """Lines of one frame at most: the surest."""
    columns: int = 8192
    """Columns of all lines of a frame together: it makes the size of the link's slots. What does not fit is counted."""
    line_columns: int = 1600
    """Columns of one line; a longer one is squeezed into them."""
    rows: int = 48
    """Height the lines are brought to: the reader's."""
    width: int = 8192
    height: int = 8192
    """Frames that are taken."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> TextDetectConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage text-detect")
        return cls(**data)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "side_max": (32, 4096), "threshold": (0.01, 0.99), "box_threshold": (0.01, 0.99), "unclip": (0, 4),
    "lines": (1, LINES_MAX), "columns": (64, LINES_MAX_COLUMNS), "line_columns": (64, LINES_MAX_COLUMNS),
    "rows": (16, 128), "width": (1, FRAME_MAX_SIDE), "height": (1, FRAME_MAX_SIDE),
}  # fmt: skip
SCHEMA: Mapping[str, Any] = schema_of(TextDetectConfig(), _BOUNDS)
"""JSON Schema of the text detector's settings."""
