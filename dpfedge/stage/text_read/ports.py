# SPDX-License-Identifier: Apache-2.0
"""What the text reader takes and gives: the lines of frames in, their words out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.limits import KIB, LINES_MAX, LINES_MAX_COLUMNS
from dpfedge.stage.ports import Dim, Port, Ports, text_port
from dpfedge.stage.text_lines import lines_port
from dpfedge.stage.text_read.config import TextReadConfig

__all__ = ["FOUND_BYTES", "ports"]

FOUND_BYTES = 64 * KIB
"""Most bytes of one `found`: 100 lines of 400 characters with their boxes."""


def ports(config: Mapping[str, Any], model: Mapping[str, Any] | None) -> Ports:
    """`lines` as `text-detect` gives them; `found` a CBOR map per frame, `text` UTF-8 for whoever reads on."""
    settings = TextReadConfig.of(config)
    rows = int((model or {}).get("height", 48))
    found = Port("bytes", (Dim("bytes", 0, FOUND_BYTES),), unit="cbor", slots=16)
    text = text_port(settings.text_bytes, slots=8, optional=True)
    return Ports({"lines": lines_port(LINES_MAX, LINES_MAX_COLUMNS, rows)}, {"found": found, "text": text})
