# SPDX-License-Identifier: Apache-2.0
"""Lines of text as pictures in, their words out: per frame for the caller, and as running text for a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedge.stage.text_read.stage import TextReadStage

__all__ = ["TextReadStage"]


def __getattr__(name: str) -> Any:
    # ports and settings are asked where the stage's libraries need not be installed
    if name == "TextReadStage":
        from dpfedge.stage.text_read.stage import TextReadStage

        return TextReadStage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
