# SPDX-License-Identifier: Apache-2.0
"""Samples become bytes of a sound format, piece by piece."""

from __future__ import annotations

import importlib.util
import io
from typing import Any

import numpy as np
import pytest

from dpfedge.serve.errors import RequestError
from dpfedge.serve.media.encode import FORMATS, PCM_HZ, encoder_for

RATE = 22050
TONE = (np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE) * 9000).astype(np.int16)


def encoded(name: str, pieces: int = 5) -> bytes:
    encoder = encoder_for(name, RATE)
    parts = [encoder.feed(piece) for piece in np.array_split(TONE, pieces)]
    return b"".join([*parts, encoder.finish()])


def test_wav__is_head_and_samples() -> None:
    """The samples as they are; the head once."""
    data = encoded("wav")

    assert data[:4] == b"RIFF"
    assert data[44:] == TONE.tobytes()


def test_wav__of_nothing_is_a_head() -> None:
    """A sound without samples is still a sound."""
    assert len(encoder_for("wav", RATE).finish()) == 44


def test_pcm__is_at_openais_rate() -> None:
    """One second is 24 000 samples of two bytes."""
    assert len(encoded("pcm")) / 2 == pytest.approx(PCM_HZ, abs=4)


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"wav", "pcm"}))
def test_codec__is_decoded_to_the_same_length_and_pitch(name: str) -> None:
    """What PyAV reads back is one second of 440 Hz."""
    av: Any = pytest.importorskip("av")
    with av.open(io.BytesIO(encoded(name))) as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    sound = np.concatenate(frames).astype(np.float64)
    middle = sound[rate // 4 : rate * 3 // 4]

    assert len(sound) / rate == pytest.approx(1.0, abs=0.12)
    assert np.argmax(np.abs(np.fft.rfft(middle))) * rate / len(middle) == pytest.approx(440, abs=5)


def test_codec__without_its_library_names_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is the extra; wav and pcm go on working."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(RequestError, match=r"'mp3' needs PyAV.*allowed wav, pcm.*dpfedge\[media\]") as caught:
        encoder_for("mp3", RATE)
    assert caught.value.param == "response_format"
    assert encoded("wav")
