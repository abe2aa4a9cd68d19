# SPDX-License-Identifier: Apache-2.0
"""The voice stage's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.config import check
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

__all__ = ["SCHEMA", "VoiceConfig"]


@dataclass(frozen=True, slots=True)
class VoiceConfig:
    """How text is cut, spoken and paced."""

    gain: float = 1.0
    """Factor on the model's samples before they become 16-bit; fixed, because a streamed answer has no known peak."""
    speed: float = 1.0
    """Words per time against the voice's own pace; a request's `speed` multiplies it."""
    noise_scale: float | None = None
    """Liveliness of the tone; None: the voice's own value."""
    noise_w: float | None = None
    """Liveliness of the rhythm; None: the voice's own value."""
    overlap_frames: int | None = None
    """Latent frames decoded on each side of a chunk and dropped; None: half the decoder's receptive field, so exact."""
    first_frames: int = 16
    """Latent frames in the first chunk of an answer; each later chunk doubles up to `chunk_frames`."""
    chunk_frames: int = 64
    """Latent frames in a chunk once the answer is under way."""
    clause_pause_ms: int = 0
    """Silence after a clause that ends inside a sentence."""
    sentence_pause_ms: int = 150
    """Silence after a sentence, and after a line."""
    first_words: int = 16
    """Longest first clause of a text given as a whole, in words."""
    clause_words: int = 40
    """Longest later clause of a text given as a whole, in words."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> VoiceConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage voice")
        return cls(**data)


_BOUNDS: Mapping[str, Any] = {
    "gain": (0.01, 8),
    "speed": (0.25, 4),
    "noise_scale": {"type": "number"},
    "noise_w": {"type": "number"},
    "overlap_frames": {"type": "integer", "minimum": 0, "maximum": 256},
    "first_frames": (1, 4096),
    "chunk_frames": (1, 4096),
    "clause_pause_ms": (0, 2000),
    "sentence_pause_ms": (0, 2000),
    "first_words": {"minimum": 1},
    "clause_words": {"minimum": 1},
}


SCHEMA: Mapping[str, Any] = schema_of(VoiceConfig(), _BOUNDS)
"""JSON Schema of the `voice` section's stage settings."""
