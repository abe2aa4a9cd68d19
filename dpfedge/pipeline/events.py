# SPDX-License-Identifier: Apache-2.0
"""What a turn tells its caller, in order; plain data, no behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from dpfedge.errors import DpfError
from dpfedge.records import dataclass

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "AudioChunk",
    "Event",
    "Failed",
    "PartialTranscript",
    "SpeechStarted",
    "SpeechStopped",
    "TextDelta",
    "Transcript",
    "TurnDone",
]


@dataclass(frozen=True, slots=True)
class Event:
    """Base: `turn` counts the turns of the session from 1; `at_ns` is CLOCK_MONOTONIC when it reached this process."""

    turn: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class SpeechStarted(Event):
    """Speech began `at_ms` after the session's first sample."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped(Event):
    """The endpoint was decided; speech lasted from `start_ms` to `at_ms`. `reason`: silence, flush, length."""

    at_ms: int
    start_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class PartialTranscript(Event):
    """The words so far; they may still change."""

    text: str


@dataclass(frozen=True, slots=True)
class Transcript(Event):
    """The final words of one utterance ("" when nothing was said), `start_ms`..`end_ms` on the session's clock."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class TextDelta(Event):
    """Text the llm added."""

    text: str


@dataclass(frozen=True, slots=True)
class AudioChunk(Event):
    """Samples of the answer: i16[n], mono, `rate` Hz; a view that ends when the next event is asked for."""

    samples: np.ndarray[Any, np.dtype[np.int16]]
    rate: int


@dataclass(frozen=True, slots=True)
class TurnDone(Event):
    """The turn is complete. `finish`: stop, length, cancelled, no_speech. `report`: stage → its DONE map."""

    finish: str
    report: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed(Event):
    """The turn failed; a session goes on with the next one."""

    error: DpfError
