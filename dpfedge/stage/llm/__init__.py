# SPDX-License-Identifier: Apache-2.0
"""Messages in, tokens out as text: to the caller as they come, to the voice clause by clause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.llm.stage import LlmStage

__all__ = ["LlmStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked by every start, where the stage's libraries are not wanted
    if name == "LlmStage":
        from dpfedge.stage.llm.stage import LlmStage

        return LlmStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
