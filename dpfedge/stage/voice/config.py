# SPDX-License-Identifier: Apache-2.0
"""The voice stage's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpfedge.config import check

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


_LEAST: Mapping[str, Mapping[str, Any]] = {
    "gain": {"minimum": 0.01, "maximum": 8},
    "speed": {"minimum": 0.25, "maximum": 4},
    "overlap_frames": {"minimum": 0, "maximum": 256},
    "first_frames": {"minimum": 1, "maximum": 4096},
    "chunk_frames": {"minimum": 1, "maximum": 4096},
    "clause_pause_ms": {"minimum": 0, "maximum": 2000},
    "sentence_pause_ms": {"minimum": 0, "maximum": 2000},
    "first_words": {"minimum": 1},
    "clause_words": {"minimum": 1},
}


def _property(name: str, default: Any) -> dict[str, Any]:
    kind = "integer" if isinstance(default, int) or name.endswith("_frames") else "number"
    return {"type": [kind, "null"] if default is None else kind, "default": default, **_LEAST.get(name, {})}


SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {name: _property(name, default) for name, default in asdict(VoiceConfig()).items()},
}
"""JSON Schema of the `voice` section's stage settings."""
