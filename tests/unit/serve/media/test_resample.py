# SPDX-License-Identifier: Apache-2.0
"""Pieces at one rate become the same sound at another."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.serve.media.resample import Resampler


def tone(rate: int, seconds: float = 0.5) -> np.ndarray:
    time = np.arange(int(rate * seconds)) / rate
    return (np.sin(2 * np.pi * 500 * time) * 12000).astype(np.int16)


def test_same_rate__is_the_same_array() -> None:
    """Nothing is copied and nothing is held back."""
    samples = tone(16000)
    one = Resampler(16000, 16000)

    assert one.feed(samples) is samples
    assert len(one.flush()) == 0


@pytest.mark.parametrize(("source", "target"), [(22050, 24000), (24000, 16000), (16000, 48000)])
def test_pieces__joined_are_the_whole(source: int, target: int) -> None:
    """Where the cuts are is not heard, and the length is right."""
    samples = tone(source)
    whole, cut = Resampler(source, target), Resampler(source, target)
    expected = np.concatenate([whole.feed(samples), whole.flush()])
    pieces = [cut.feed(piece) for piece in np.array_split(samples, 13)]
    found = np.concatenate([*pieces, cut.flush()])

    assert len(found) == len(expected)
    assert np.abs(found.astype(int) - expected).max() <= 3  # soxr dithers 16-bit output
    assert len(found) == pytest.approx(target / 2, abs=4)


def test_tone__keeps_its_pitch_and_level() -> None:
    """500 Hz stay 500 Hz, as loud as before."""
    one = Resampler(22050, 24000)
    found = np.concatenate([one.feed(tone(22050)), one.flush()])
    middle = found[2400:-2400].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(middle))

    assert np.argmax(spectrum) * 24000 / len(middle) == pytest.approx(500, abs=5)
    assert np.abs(middle).max() == pytest.approx(12000, rel=0.02)
