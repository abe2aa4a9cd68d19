# SPDX-License-Identifier: Apache-2.0
"""Whether a recognised text is believed: text and how much speech there was in, text or nothing out."""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["believed"]

_NO_LETTER = re.compile(r"[^\w' ]+")


def believed(text: str, speech_ms: float, *, invented: Collection[str], least_speech_ms: float) -> str:
    """`text`, or "" when it holds no letter or digit, or is what the model invents where hardly anything was said."""
    words = " ".join(_NO_LETTER.sub(" ", text.lower()).split())
    if not words or (speech_ms < least_speech_ms and words in invented):
        return ""
    return text
