# SPDX-License-Identifier: Apache-2.0
"""A realtime session's settings: changed as a whole or not at all, and shown as OpenAI shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.serve.errors import RequestError
from dpfedge.serve.realtime.config import Known, SessionConfig

START = SessionConfig("toy", "joe")


def has(param: str, known: str) -> Callable[[str], str]:
    def check(name: str) -> str:
        if name != known:
            raise RequestError("there is no such thing", found=name, param=param)
        return name

    return check


KNOWN = Known(voice=has("voice", "joe"), recogniser=has("model", "ear"), language=has("language", "en"))


def test_update__changes_what_it_names() -> None:
    """Everything else stays, the id too; the old settings are another object."""
    audio = {
        "input": {"format": {"type": "audio/pcm", "rate": 16000}, "turn_detection": {"threshold": 0.6}},
        "output": {"format": {"type": "audio/pcm", "rate": 8000}, "voice": {"id": "joe"}},
    }
    changed = START.updated(
        {"instructions": "Be brief.", "output_modalities": ["text"], "max_output_tokens": 9, "audio": audio}, KNOWN
    )

    assert (changed.instructions, changed.modality, changed.max_output_tokens) == ("Be brief.", "text", 9)
    assert (changed.input_hz, changed.output_hz, changed.voice) == (16000, 8000, "joe")
    assert changed.vad == {"type": "server_vad", "threshold": 0.6}
    assert changed.id == START.id
    assert START.input_hz == 24000


def test_update__by_hand_answers_nothing_by_itself() -> None:
    """turn_detection null is not the same as not given."""
    by_hand = START.updated({"audio": {"input": {"turn_detection": None}}}, KNOWN)

    assert by_hand.vad == {"type": "none"}
    assert (by_hand.answers_by_itself, by_hand.interrupts) == (False, False)
    assert (START.answers_by_itself, START.interrupts) == (True, True)
    assert by_hand.as_json()["audio"]["input"]["turn_detection"] is None
    assert START.updated({"audio": {"input": {}}}, KNOWN).turn_detection == START.turn_detection


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ([], "session"),
        ({"colour": 1}, "colour"),
        ({"type": "transcription"}, "type"),
        ({"audio": 1}, "session.audio"),
        ({"audio": {"input": {"format": {"type": "audio/pcmu"}}}}, "type"),
        ({"audio": {"input": {"format": {"rate": 7999}}}}, "rate"),
        ({"audio": {"input": {"turn_detection": {"type": "semantic_vad"}}}}, "type"),
        ({"audio": {"input": {"turn_detection": {"silence_duration_ms": 10}}}}, "silence_duration_ms"),
        ({"audio": {"output": {"voice": "eve"}}}, "voice"),
        ({"audio": {"output": {"speed": 2}}}, "speed"),
        ({"output_modalities": ["audio", "text"]}, "output_modalities"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"model": "gpt-realtime"}, "model"),
        ({"audio": {"input": {"transcription": True}}}, "transcription"),
        ({"audio": {"input": {"transcription": {"model": "whisper-1"}}}}, "model"),
        ({"audio": {"input": {"transcription": {"model": "ear", "language": "de"}}}}, "language"),
        ({"audio": {"input": {"transcription": {"prompt": "Beckett"}}}}, "prompt"),
        ({"audio": {"input": {"transcription": {"keywords": ["Beckett"]}}}}, "keywords"),
    ],
)
def test_update__refuses_what_it_cannot_do(change: Any, param: str) -> None:
    """The first thing that cannot be is named."""
    with pytest.raises(RequestError) as caught:
        START.updated(change, KNOWN)
    assert caught.value.param == param


def test_update__with_what_the_package_has() -> None:
    """What the session said of itself can be sent back; the recogniser goes by its own name, too."""
    shown = START.as_json()["audio"]["input"]["transcription"]
    for asked in (shown, {"model": "ear", "language": "en", "prompt": ""}, {}):
        assert START.updated({"model": "toy", "audio": {"input": {"transcription": asked}}}, KNOWN).transcription
    assert not START.updated({"audio": {"input": {"transcription": None}}}, KNOWN).transcription


def test_json__has_defaults_filled_in() -> None:
    """A client sees what applies, also where it set nothing."""
    shown = START.as_json()

    assert (shown["type"], shown["model"], shown["max_output_tokens"]) == ("realtime", "toy", "inf")
    turns = shown["audio"]["input"]["turn_detection"]
    assert turns == {"create_response": True, "interrupt_response": True, "type": "server_vad"}
