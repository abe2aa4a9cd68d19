# SPDX-License-Identifier: Apache-2.0
"""A transcription's segments in, OpenAI's five response formats out.

It recognises nothing and invents no figure: what the recogniser does not measure is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from dpfedge.pipeline.events import Event, Transcript, TurnDone
from dpfedge.records import dataclass

__all__ = ["FORMATS", "Transcription"]


@dataclass(slots=True)
class Transcription:
    """A file's words; times in milliseconds since its first sample."""

    language: str
    segments: list[Transcript] = field(default_factory=list)
    seconds: float = 0.0
    reason: str | None = None
    """Why there are no words, when there are none."""

    def add(self, event: Event) -> None:
        """Take one event of the turn."""
        if isinstance(event, Transcript) and event.text:
            self.segments.append(event)
        elif isinstance(event, TurnDone):
            report = event.report.get("decoder", {})
            self.seconds = round(float(report.get("audio_ms", 0.0)) / 1000, 3)
            if not self.segments:
                self.reason = str(report.get("reason") or "no speech was found")

    @property
    def text(self) -> str:
        """All words."""
        return " ".join(segment.text.strip() for segment in self.segments)

    def as_json(self) -> dict[str, Any]:
        """`json`."""
        body = {"text": self.text, "usage": {"type": "duration", "seconds": self.seconds}}
        return body | self._why()

    def as_verbose_json(self) -> dict[str, Any]:
        """`verbose_json`."""
        segments = [_segment(index, one) for index, one in enumerate(self.segments)]
        head = {"task": "transcribe", "language": self.language, "duration": self.seconds, "text": self.text}
        return {**head, "segments": segments, "usage": {"type": "duration", "seconds": self.seconds}, **self._why()}

    def as_text(self) -> str:
        """`text`."""
        return self.text + "\n"

    def as_srt(self) -> str:
        """`srt`."""
        return "".join(
            f"{index}\n{_clock(one.start_ms, ',')} --> {_clock(one.end_ms, ',')}\n{one.text.strip()}\n\n"
            for index, one in enumerate(self.segments, 1)
        )

    def as_vtt(self) -> str:
        """`vtt`."""
        cues = (
            f"{_clock(one.start_ms, '.')} --> {_clock(one.end_ms, '.')}\n{_escaped(one.text.strip())}\n\n"
            for one in self.segments
        )
        return "WEBVTT\n\n" + "".join(cues)

    def _why(self) -> dict[str, str]:
        return {} if self.reason is None else {"reason": self.reason}


FORMATS: dict[str, tuple[str, Callable[[Transcription], Any]]] = {
    "json": ("application/json", Transcription.as_json),
    "verbose_json": ("application/json", Transcription.as_verbose_json),
    "text": ("text/plain", Transcription.as_text),
    "srt": ("application/x-subrip", Transcription.as_srt),
    "vtt": ("text/vtt", Transcription.as_vtt),
}
"""Format → media type and how it is written."""


def _segment(index: int, one: Transcript) -> dict[str, Any]:
    return {
        "id": index,
        "seek": 0,
        "start": one.start_ms / 1000,
        "end": one.end_ms / 1000,
        "text": one.text,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": None,
        "compression_ratio": None,
        "no_speech_prob": None,
    }


def _clock(ms: int, point: str) -> str:
    seconds, ms = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{ms:03}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
