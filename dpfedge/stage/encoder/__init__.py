# SPDX-License-Identifier: Apache-2.0
"""The encoder stage: speech in, words out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.encoder.stage import EncoderStage

__all__ = ["EncoderStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked by every start, where the stage's libraries are not wanted
    if name == "EncoderStage":
        from dpfedge.stage.encoder.stage import EncoderStage

        return EncoderStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
