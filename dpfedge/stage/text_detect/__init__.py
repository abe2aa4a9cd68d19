# SPDX-License-Identifier: Apache-2.0
"""Frames in, the lines of text in each out, upright and of one height, written straight into the link's slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.text_detect.stage import TextDetectStage

__all__ = ["TextDetectStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked where the stage's libraries need not be installed
    if name == "TextDetectStage":
        from dpfedge.stage.text_detect.stage import TextDetectStage

        return TextDetectStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
