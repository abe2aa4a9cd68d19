# SPDX-License-Identifier: Apache-2.0
"""What the text detector takes and gives: frames in, the lines of each frame out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.stage.ports import Dim, Port, Ports
from dpfedge.stage.text_detect.config import TextDetectConfig
from dpfedge.stage.text_lines import lines_port

__all__ = ["ports"]


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """`frames` u8[height, width, 3] RGB; `lines` one message per frame, as `stage/text_lines.py` lays it out."""
    settings = TextDetectConfig.of(config)
    shape = (Dim("height", 1, settings.height), Dim("width", 1, settings.width), 3)
    frames = Port("u8", shape, layout="hwc", unit="rgb", slots=4)
    return Ports({"frames": frames}, {"lines": lines_port(settings.lines, settings.columns, settings.rows)})
