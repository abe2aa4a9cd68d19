# SPDX-License-Identifier: Apache-2.0
"""Any rate to 16 kHz."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.stage.decoder.resample import Resampler


def resampled(samples: Any, rate: int, piece: int) -> Any:
    resampler = Resampler(rate)
    blocks = [resampler.push(samples[at : at + piece]) for at in range(0, len(samples), piece)]
    return np.concatenate([*blocks, resampler.finish()])


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000, 96000])
def test_push__tone_keeps_its_frequency_and_length(rate: int) -> None:
    """A 440 Hz tone stays one, as long as before."""
    tone = np.sin(2 * np.pi * 440 * np.arange(rate) / rate).astype(np.float32)

    out = resampled(tone, rate, 777)

    spectrum = np.abs(np.fft.rfft(out))
    assert len(out) == pytest.approx(16000, abs=2)
    assert spectrum.argmax() * 16000 / len(out) == pytest.approx(440, abs=1)
    assert np.abs(out[2000:-2000]).max() == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("piece", [1, 441, 100_000])
def test_push__any_piece_size(piece: int) -> None:
    """The samples are the same however they are cut."""
    noise = np.random.default_rng(0).normal(0, 0.1, 5000).astype(np.float32)

    assert np.array_equal(resampled(noise, 44100, piece), resampled(noise, 44100, 5000))


def test_push__16_khz_passes() -> None:
    """Nothing is done to samples that have the rate."""
    noise = np.random.default_rng(0).normal(0, 0.1, 500).astype(np.float32)

    assert Resampler(16000).push(noise) is noise
