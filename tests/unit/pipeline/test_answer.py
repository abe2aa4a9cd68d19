# SPDX-License-Identifier: Apache-2.0
"""Events add up to one answer."""

from __future__ import annotations

import gc
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import StageDied
from dpfedge.pipeline.answer import Answer, Collector
from dpfedge.pipeline.events import AudioChunk, Failed, TextDelta, Transcript, TurnDone


def test_collector__adds_up_a_turn() -> None:
    """Words, samples and the report; the samples are its own."""
    collector = Collector(8000)
    view = np.array([1, 2], np.int16)
    for event in (
        Transcript(1, 0, "what", 0, 1),
        Transcript(2, 0, "", 0, 1),
        TextDelta(1, 0, " It is"),
        TextDelta(1, 0, " so. "),
        AudioChunk(1, 0, view, 8000),
        AudioChunk(1, 0, view, 8000),
        TurnDone(1, 0, "stop", {"llm": {"clauses": 1}}),
    ):
        collector.add(event)
    view[:] = 0
    answer = collector.answer()

    assert (answer.question, answer.text, answer.rate) == ("what", "It is so.", 8000)
    assert answer.samples.tolist() == [1, 2, 1, 2]
    assert answer.report == {"llm": {"clauses": 1}}


def test_collector__keeps_the_words_of_two_turns_apart() -> None:
    """A pause in the question makes two turns, and two answers that begin without a space."""
    collector = Collector(8000)
    for turn, words in ((1024, "So it"), (1024, " is."), (2048, "No."), (3072, "")):
        collector.add(TextDelta(turn, 0, words))

    assert collector.answer().text == "So it is. No."


def test_collector__without_events() -> None:
    """Silence is an empty answer."""
    answer = Collector(0).answer()

    assert (answer.question, answer.text, answer.samples.size) == ("", "", 0)


def test_collector__raises_a_failed_turn() -> None:
    """The error the stage gave."""
    with pytest.raises(StageDied):
        Collector(0).add(Failed(1, 0, StageDied("gone", stage="llm")))


def test_answer__saved_is_a_wav_file(tmp_path: Path) -> None:
    """Mono, 16 bits, the voice's rate."""
    Answer("", "", np.arange(5, dtype=np.int16), 22050).save(tmp_path / "a.wav")

    with wave.open(str(tmp_path / "a.wav")) as wav:
        assert (wav.getnchannels(), wav.getsampwidth(), wav.getframerate()) == (1, 2, 22050)
        assert np.frombuffer(wav.readframes(9), "<i2").tolist() == [0, 1, 2, 3, 4]


def test_answer__that_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One error, and nothing said behind it when the half-made writer is collected."""
    said: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    with pytest.raises(FileNotFoundError):
        Answer("", "", np.arange(5, dtype=np.int16), 22050).save(tmp_path / "none" / "a.wav")
    gc.collect()

    assert said == []
