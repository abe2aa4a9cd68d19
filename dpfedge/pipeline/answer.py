# SPDX-License-Identifier: Apache-2.0
"""A whole spoken answer, collected from a turn's events; it keeps its own samples."""

from __future__ import annotations

import wave
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedge.pipeline.events import AudioChunk, Event, Failed, TextDelta, Transcript, TurnDone
from dpfedge.records import dataclass

__all__ = ["Answer", "Collector"]

if TYPE_CHECKING:
    import numpy as np

    Samples = np.ndarray[Any, np.dtype[np.int16]]


@dataclass(frozen=True, slots=True)
class Answer:
    """`question` and `text` are words, `samples` i16[n] mono at `rate` Hz, `report` stage → what it did."""

    question: str
    text: str
    samples: Samples
    rate: int
    report: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def save(self, path: str | Path) -> None:
        """Write the speech as a WAV file."""
        # a writer that opens the file itself says a second, senseless error when it cannot (Python 3.11 to 3.13)
        with open(path, "wb") as file, wave.open(file, "wb") as out:
            out.setnchannels(1)
            out.setsampwidth(2)
            out.setframerate(self.rate or 16000)
            out.writeframes(self.samples.astype("<i2", copy=False).data)


class Collector:
    """Adds up events."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._questions: list[str] = []
        self._words: dict[int, list[str]] = {}
        self._samples: list[Samples] = []
        self._report: Mapping[str, Mapping[str, Any]] = {}

    def add(self, event: Event) -> None:
        """Take one event; raises the error of a failed turn."""
        if isinstance(event, Failed):
            raise event.error
        if isinstance(event, Transcript):
            self._questions.append(event.text)
        elif isinstance(event, TextDelta):
            self._words.setdefault(event.turn, []).append(event.text)
        elif isinstance(event, AudioChunk):
            self._samples.append(event.samples.copy())  # the chunk's view ends with the next event
        elif isinstance(event, TurnDone) and event.report:
            self._report = event.report

    def answer(self) -> Answer:
        """What was collected."""
        import numpy as np  # not with this module: the stages are started before it is needed

        samples = np.concatenate(self._samples) if self._samples else np.empty(0, np.int16)
        question = " ".join(text for text in self._questions if text)
        text = " ".join("".join(words).strip() for words in self._words.values())
        return Answer(question, text.strip(), samples, self._rate, self._report)
