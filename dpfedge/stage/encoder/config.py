# SPDX-License-Identifier: Apache-2.0
"""The encoder stage's settings and the recogniser's own figures, from mappings to frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.config import check
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

__all__ = ["LIVE", "SCHEMA", "EncoderConfig"]

LIVE = ("partials", "partial_ms", "partial_share")
"""Settings that may change while the stage runs: how much is spent on words that may still change."""


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """How often words are shown while someone speaks, and when words are not believed."""

    partials: bool = True
    """Recognise a growing utterance before it ends."""
    partial_ms: int = 600
    """New audio between two partial transcripts at least."""
    partial_share: float = 0.5
    """Of the time new audio takes to arrive, what partial transcripts may cost at most; a slow machine shows fewer."""
    tokens_per_second: float = 6.5
    """Most tokens per second of audio; Moonshine's authors' own bound against endless repetition."""
    repeats: int = 4
    """The same 1 to 8 tokens this often behind each other end the transcript."""
    least_speech_ms: int = 500
    """With less speech than this, `invented` texts are taken for noise."""
    invented: tuple[str, ...] = ("you", "thank you", "thanks for watching", "bye", "the", "i", "a")
    """What the model makes of breath, hiss and clicks; lower case, without punctuation."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> EncoderConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage encoder")
        settings: dict[str, Any] = dict(data)
        if "invented" in settings:
            settings["invented"] = tuple(settings["invented"])
        return cls(**settings)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "partial_ms": (100, 10_000),
    "partial_share": (0.01, 1.0),
    "tokens_per_second": (1.0, 50.0),
    "repeats": (2, 64),
    "least_speech_ms": (0, 10_000),
}


SCHEMA: Mapping[str, Any] = schema_of(EncoderConfig(), _BOUNDS)
"""JSON Schema of the `encoder` section's stage settings."""
