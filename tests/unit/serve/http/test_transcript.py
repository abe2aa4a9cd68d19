# SPDX-License-Identifier: Apache-2.0
"""Segments are written in OpenAI's five formats."""

from __future__ import annotations

import pytest

from dpfedge.pipeline.events import Transcript, TurnDone
from dpfedge.serve.http.transcript import FORMATS, Transcription


@pytest.fixture
def words() -> Transcription:
    """Two segments; one ends behind the first hour."""
    one = Transcription("en")
    one.add(Transcript(1, 0, " Turn left", 100, 900))
    one.add(Transcript(1, 0, "", 900, 950))
    one.add(Transcript(2, 0, "now & <then>.", 1000, 3_661_007))
    one.add(TurnDone(2, 0, "stop", {"decoder": {"audio_ms": 4730.4}}))
    return one


def test_formats__are_the_five() -> None:
    """No other is offered."""
    assert set(FORMATS) == {"json", "verbose_json", "text", "srt", "vtt"}


def test_json__is_text_and_duration(words: Transcription) -> None:
    """Empty segments are none."""
    assert words.as_json() == {
        "text": "Turn left now & <then>.",
        "usage": {"type": "duration", "seconds": 4.73},
    }


def test_verbose_json__invents_no_figure(words: Transcription) -> None:
    """Times in seconds; what is not measured is null."""
    body = words.as_verbose_json()

    assert [(one["id"], one["start"], one["end"]) for one in body["segments"]] == [(0, 0.1, 0.9), (1, 1.0, 3661.007)]
    assert {one["avg_logprob"] for one in body["segments"]} == {None}
    assert (body["language"], body["duration"]) == ("en", 4.73)


def test_subtitles__count_and_escape(words: Transcription) -> None:
    """SubRip with commas and numbers; WebVTT with points, and no markup from the words."""
    assert words.as_srt().split("\n\n")[1] == "2\n00:00:01,000 --> 01:01:01,007\nnow & <then>."
    assert words.as_vtt().startswith("WEBVTT\n\n00:00:00.100 --> 00:00:00.900\nTurn left\n\n")
    assert "now &amp; &lt;then&gt;." in words.as_vtt()


@pytest.mark.parametrize(("report", "reason"), [({}, "no speech was found"), ({"reason": "too quiet"}, "too quiet")])
def test_silence__has_a_reason(report: dict[str, str], reason: str) -> None:
    """An empty text says why it is empty."""
    one = Transcription("en")
    one.add(TurnDone(0, 0, "no_speech", {"decoder": report}))

    assert (one.as_json()["text"], one.as_json()["reason"]) == ("", reason)
    assert one.as_text() == "\n"
