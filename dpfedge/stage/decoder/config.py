# SPDX-License-Identifier: Apache-2.0
"""The decoder stage's settings, from the pipeline file's mapping to one frozen record; it knows no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dpfedge.config import check
from dpfedge.errors import ConfigError, InputError
from dpfedge.records import dataclass
from dpfedge.stage.settings import schema_of

__all__ = ["FRAME", "RATE", "SCHEMA", "DecoderConfig"]

RATE = 16000
"""Hz of everything behind the resampler: the rate of the speech model and of the voice activity model."""
FRAME = 512
"""Samples of one voice activity decision (32 ms)."""


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """When speech starts, pauses and ends; times in milliseconds are rounded to frames of 32 ms."""

    start_threshold: float = 0.5
    """Speech probability at which speech starts."""
    end_threshold: float = 0.35
    """Speech probability below which a pause starts."""
    min_speech_ms: int = 96
    """Shorter bursts are no speech."""
    pre_roll_ms: int = 320
    """Audio kept before the first frame of speech."""
    draft_ms: int = 200
    """Silence after which a conversation's words are recognised ahead of the endpoint."""
    endpoint_ms: int = 400
    """Silence that ends a turn."""
    max_utterance_ms: int = 15000
    """A turn ends here even when speech goes on."""
    segment_gap_ms: int = 1500
    """Transcription: silence that ends a segment of any length; shorter pauses stay inside, because context helps."""
    segment_ms: int = 8000
    """Transcription: from this length on, a pause of `segment_pause_ms` ends a segment."""
    segment_max_ms: int = 12000
    """Transcription: a segment never becomes longer; it is cut where speech was least likely in its last 3 seconds."""
    segment_pause_ms: int = 256
    """Transcription: the pause looked for once a segment has `segment_ms`."""
    trailing_ms: int = 250
    """Silence behind the words the recogniser is given at least; what the pause lacks is written as zeros."""
    partial_ms: int = 320
    """While someone speaks, the encoder is shown the growing utterance this often."""
    high_pass_hz: float = 40.0
    """Corner of the filter that removes offset and rumble; 0 turns it off."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> DecoderConfig:
        """The checked settings; ConfigError names an unknown key and the nearest known one."""
        check(data, SCHEMA, "stage decoder")
        config = cls(**data)
        if config.end_threshold > config.start_threshold:
            raise ConfigError("end_threshold is above start_threshold", where="stage decoder",
                              found=config.end_threshold, allowed=f"at most {config.start_threshold}")  # fmt: skip
        return config

    def for_request(self, vad: Mapping[str, Any] | None) -> DecoderConfig:
        """With a request's own `threshold`, `prefix_padding_ms` and `silence_duration_ms` (OpenAI Realtime names)."""
        changes: dict[str, Any] = {}
        for key, value in (vad or {}).items():
            if key in _IGNORED or value is None:
                continue
            if key not in _REQUEST:
                allowed = ", ".join(_REQUEST)
                raise InputError("unknown voice activity setting", stage="decoder", found=key, allowed=allowed)
            name, least, most = _REQUEST[key]
            if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
                raise InputError(f"{key} is out of range", stage="decoder", found=value, allowed=f"{least} to {most}")
            changes[name] = value if name == "start_threshold" else int(value)
        if "start_threshold" in changes:
            changes["end_threshold"] = min(self.end_threshold, max(0.05, changes["start_threshold"] - 0.15))
        if "endpoint_ms" in changes:
            changes["draft_ms"] = min(self.draft_ms, changes["endpoint_ms"])
        return replace(self, **changes)


_REQUEST: Mapping[str, tuple[str, float, float]] = {
    "threshold": ("start_threshold", 0.05, 0.95),
    "prefix_padding_ms": ("pre_roll_ms", 0, 1000),
    "silence_duration_ms": ("endpoint_ms", 64, 5000),
}
_IGNORED = frozenset({"type", "create_response", "interrupt_response"})  # decided by the face, not by the decoder

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "start_threshold": (0.05, 0.95),
    "end_threshold": (0.01, 0.95),
    "min_speech_ms": (32, 1000),
    "pre_roll_ms": (0, 1000),
    "draft_ms": (64, 5000),
    "endpoint_ms": (64, 5000),
    "max_utterance_ms": (1000, 16000),
    "segment_gap_ms": (64, 5000),
    "segment_ms": (1000, 16000),
    "segment_max_ms": (2000, 16000),
    "segment_pause_ms": (32, 1000),
    "trailing_ms": (0, 1000),
    "partial_ms": (64, 5000),
    "high_pass_hz": (0, 200),
}

SCHEMA: Mapping[str, Any] = schema_of(DecoderConfig(), _BOUNDS)
"""JSON Schema of the `decoder` section's stage settings."""
