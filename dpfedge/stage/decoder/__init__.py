# SPDX-License-Identifier: Apache-2.0
"""The decoder stage: audio in any container in, speech segments out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.decoder.stage import DecoderStage

__all__ = ["DecoderStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked by every start, where the stage's libraries are not wanted
    if name == "DecoderStage":
        from dpfedge.stage.decoder.stage import DecoderStage

        return DecoderStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
