# SPDX-License-Identifier: Apache-2.0
"""A realtime session's settings: what a client may change with `session.update`, checked, and how they are shown.

It starts nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Any

from dpfedge.records import dataclass
from dpfedge.serve.http.fields import Check, anything, boolean, integer, number, only, read_fields, text, wrong
from dpfedge.serve.http.models import check_model
from dpfedge.serve.http.speech import check_voice
from dpfedge.serve.http.transcriptions import check_language
from dpfedge.serve.provider import Provider

__all__ = ["Known", "SessionConfig"]

_RATES = (8_000, 48_000)
_VAD_CHECKS: dict[str, Check] = {
    "type": only("server_vad", remedy="use server_vad, or null to commit by hand"),
    "threshold": number(0.05, 0.95),
    "prefix_padding_ms": integer(0, 1000),
    "silence_duration_ms": integer(64, 5000),
    "create_response": boolean,
    "interrupt_response": boolean,
}
_BY_HAND = {"type": "none"}
"""With turn_detection null only `commit` ends an utterance."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the package has: each gives its argument back, or raises RequestError with the names there are."""

    voice: Callable[[str], str]
    recogniser: Callable[[str], str]
    language: Callable[[str], str]

    @classmethod
    def of(cls, provider: Provider) -> Known:
        """Of the package that is served."""
        return cls(
            voice=lambda name: check_voice(provider, name),
            recogniser=lambda name: check_model(provider, name, "encoder"),
            language=lambda name: check_language(provider, name),
        )


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """The settings of one session; `updated` gives a new one."""

    model: str
    voice: str
    instructions: str | None = None
    modality: str = "audio"
    input_hz: int = 24_000
    output_hz: int = 24_000
    turn_detection: Mapping[str, Any] | None = field(default_factory=lambda: {"type": "server_vad"})
    transcription: bool = True
    max_output_tokens: int | None = None
    id: str = field(default_factory=lambda: f"sess_{uuid.uuid4().hex}")

    @property
    def answers_by_itself(self) -> bool:
        """Whether an utterance is answered without `response.create`."""
        return self.turn_detection is not None and self.turn_detection.get("create_response", True)

    @property
    def interrupts(self) -> bool:
        """Whether speech ends the answer being given."""
        return self.turn_detection is not None and self.turn_detection.get("interrupt_response", True)

    @property
    def vad(self) -> Mapping[str, Any]:
        """The decoder's voice activity settings."""
        return _BY_HAND if self.turn_detection is None else self.turn_detection

    def updated(self, data: Any, known: Known) -> SessionConfig:
        """These settings with the client's changes; RequestError names the first that cannot be."""
        model = only(self.model, remedy="a session keeps the model that it was opened with")
        fields = read_fields(_object("session", data), {**_SESSION_CHECKS, "model": model}, where="session")
        audio = _object("session.audio", fields.get("audio", {}))
        parts = read_fields(audio, {"input": anything, "output": anything}, where="session.audio")
        changes = _top_changes(fields)
        heard = {"transcription": _transcription(self.model, known)}
        changes |= _input_changes(_object("session.audio.input", parts.get("input", {})), heard)
        changes |= _output_changes(_object("session.audio.output", parts.get("output", {})), known.voice)
        return replace(self, **changes)

    def as_json(self) -> dict[str, Any]:
        """The `session` object of session.created and session.updated."""
        transcription = {"model": self.model} if self.transcription else None
        defaults = {"create_response": True, "interrupt_response": True}
        turns = None if self.turn_detection is None else {**defaults, **self.turn_detection}
        heard = {
            "format": {"type": "audio/pcm", "rate": self.input_hz},
            "turn_detection": turns,
            "transcription": transcription,
            "noise_reduction": None,
        }
        said = {"format": {"type": "audio/pcm", "rate": self.output_hz}, "voice": self.voice, "speed": 1.0}
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self.id,
            "model": self.model,
            "output_modalities": [self.modality],
            "instructions": self.instructions or "",
            "tools": [],
            "tool_choice": "none",
            "max_output_tokens": self.max_output_tokens or "inf",
            "audio": {"input": heard, "output": said},
        }


def _object(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise wrong(name, value, "an object")
    return value


def _modalities(name: str, value: Any) -> str:
    if value not in (["audio"], ["text"]):
        raise wrong(name, value, '["audio"] or ["text"]')
    return str(value[0])


def _token_limit(name: str, value: Any) -> int | None:
    return None if value == "inf" else int(integer(1, 4096)(name, value))


_SESSION_CHECKS: dict[str, Check] = {
    "type": only("realtime"),
    "audio": anything,
    "instructions": text(0, 65_536),
    "output_modalities": _modalities,
    "max_output_tokens": _token_limit,
    "tools": only([]),
    "tool_choice": only("none", "auto"),
    "parallel_tool_calls": only(True, False),
    "truncation": only("auto"),
    "include": only([]),
}


def _top_changes(fields: Mapping[str, Any]) -> dict[str, Any]:
    names = {"instructions": "instructions", "output_modalities": "modality", "max_output_tokens": "max_output_tokens"}
    return {names[name]: value for name, value in fields.items() if name in names}


def _rate(where: str, value: Any) -> int:
    fields = read_fields(_object(where, value), {"type": only("audio/pcm"), "rate": integer(*_RATES)}, where=where)
    return int(fields.get("rate", 24_000))


def _input_changes(data: Mapping[str, Any], more: Mapping[str, Check]) -> dict[str, Any]:
    checks = {"format": _rate, "turn_detection": _turn_detection, "noise_reduction": only(False), **more}
    fields = read_fields(data, checks, where="session.audio.input")
    changes: dict[str, Any] = {}
    if "format" in fields:
        changes["input_hz"] = fields["format"]
    if "turn_detection" in data:
        changes["turn_detection"] = fields.get("turn_detection")
    if "transcription" in data:
        changes["transcription"] = data["transcription"] is not None
    return changes


def _transcription(model: str, known: Known) -> Check:
    """The recogniser and the language of the package; it has no others, and takes no hints."""

    def recogniser(name: str, value: Any) -> str:
        return model if value == model else known.recogniser(text(1, 256)(name, value))

    def language(name: str, value: Any) -> str:
        return known.language(text(1, 35)(name, value))

    checks = {"model": recogniser, "language": language, "prompt": only("", remedy="this recogniser takes no prompt")}
    return lambda name, value: read_fields(_object(name, value), checks, where="session.audio.input.transcription")


def _turn_detection(name: str, value: Any) -> Mapping[str, Any]:
    return {"type": "server_vad", **read_fields(_object(name, value), _VAD_CHECKS, where=name)}


def _output_changes(data: Mapping[str, Any], known_voice: Callable[[str], str]) -> dict[str, Any]:
    checks: dict[str, Check] = {
        "format": _rate,
        "voice": choice_of(known_voice),
        "speed": only(1, 1.0, remedy="a session speaks at the voice's own pace"),
    }
    fields = read_fields(data, checks, where="session.audio.output")
    names = {"format": "output_hz", "voice": "voice"}
    return {names[name]: value for name, value in fields.items() if name in names}


def choice_of(known_voice: Callable[[str], str]) -> Check:
    """A voice of the package, by name or as `{"id": name}`."""

    def check(name: str, value: Any) -> str:
        return known_voice(str(text(1, 128)(name, value.get("id") if isinstance(value, dict) else value)))

    return check
