# SPDX-License-Identifier: Apache-2.0
"""Text in, speech out: clauses become samples in the outgoing slot while later clauses still arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.voice.stage import VoiceStage

__all__ = ["VoiceStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked by every start, where the stage's libraries are not wanted
    if name == "VoiceStage":
        from dpfedge.stage.voice.stage import VoiceStage

        return VoiceStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
