# SPDX-License-Identifier: Apache-2.0
"""Phoneme ids against piper-tts' own functions."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from dpfedge.errors import ModelError, Unavailable
from dpfedge.stage.voice import phonemes as module
from dpfedge.stage.voice.phonemes import Phonemes

SENTENCES = (
    "The capital of France is Paris.",
    "Is it 3.5 bar, or 2,000?",
    "Wait: what; really! Yes...",
    "Dr. Smith lives on the Rue de la Paix, naïvely.",
    "no punctuation at all",
)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_ids__equal_piper_tts(sentence: str) -> None:
    """The same ids as piper.phoneme_ids with piper.phonemize_espeak, sentence by sentence."""
    ids = pytest.importorskip("piper.phoneme_ids")
    espeak = pytest.importorskip("piper.phonemize_espeak").EspeakPhonemizer()
    ours = Phonemes("en-us", ids.DEFAULT_PHONEME_ID_MAP)
    theirs = [
        ids.phonemes_to_ids(found, ids.DEFAULT_PHONEME_ID_MAP) for found in espeak.phonemize("en-us", sentence) if found
    ]
    assert [ours.ids(found).tolist()[0] for found in ours.sentences(sentence)] == theirs


def test_ids__leave_unknown_phonemes_out(card: dict[str, Any]) -> None:
    """A phoneme the model never learnt costs nothing and fails nothing."""
    phonemes = Phonemes("en-us", card["phoneme_id_map"])
    assert phonemes.ids(["a", "☃", "b"]).tolist() == phonemes.ids(["a", "b"]).tolist()


def test_sentences__punctuation_alone_is_none(card: dict[str, Any]) -> None:
    """espeak-ng says nothing for marks."""
    assert Phonemes("en-us", card["phoneme_id_map"]).sentences("... ?!") == []


def test_phonemes__table_without_marks() -> None:
    """The frame marks are needed."""
    with pytest.raises(ModelError, match=r"found \^, \$"):
        Phonemes("en-us", {"_": [0]})


def test_sentences__voice_unknown(card: dict[str, Any]) -> None:
    """The voice's name is in the message."""
    with pytest.raises(ModelError, match="xx-nowhere"):
        Phonemes("xx-nowhere", card["phoneme_id_map"]).sentences("hello")


def test_sentences__piper_missing(card: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the message says what to install."""
    monkeypatch.setattr(module, "_BRIDGE", {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"dpfedge\[voice\]"):
        Phonemes("en-us", card["phoneme_id_map"]).sentences("hello")
