# SPDX-License-Identifier: Apache-2.0
"""The high-pass filter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpfedge.stage.decoder.highpass import HighPass


def filtered(samples: Any, hertz: float = 40.0) -> Any:
    out = samples.astype(np.float32).copy()
    high_pass = HighPass(hertz)
    for frame in out.reshape(-1, 512):
        high_pass.filter(frame)
    return out


def test_filter__is_the_recursion() -> None:
    """The matrix form gives what the formula gives, sample by sample."""
    samples = np.random.default_rng(0).normal(0.2, 0.1, 2048).astype(np.float32)
    pole, before, after, expected = math.exp(-2 * math.pi * 40 / 16000), float(samples[0]), 0.0, []
    for sample in samples.tolist():
        after, before = sample - before + pole * after, sample
        expected.append(after)

    assert filtered(samples) == pytest.approx(expected, abs=1e-6)


def test_filter__offset_vanishes() -> None:
    """A constant becomes silence from the first sample on."""
    assert np.abs(filtered(np.full(5120, 0.37))).max() < 1e-6


def test_filter__speech_band_passes() -> None:
    """300 Hz lose less than 2 %."""
    tone = np.sin(2 * np.pi * 300 * np.arange(16384) / 16000)

    assert np.abs(filtered(tone)[8192:]).max() == pytest.approx(1, abs=0.02)


def test_filter__off() -> None:
    """0 Hz turns it off."""
    samples = np.full(512, 0.5, np.float32)

    assert np.array_equal(filtered(samples, 0.0), samples)
