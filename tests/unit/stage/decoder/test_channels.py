# SPDX-License-Identifier: Apache-2.0
"""Choosing among channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.stage.decoder.channels import Downmix

RATE = 16000


def mix(frames: Any, piece: int = 1000) -> Any:
    downmix = Downmix(RATE, frames.shape[1])
    blocks = [out for at in range(0, len(frames), piece) for out in downmix.push(frames[at : at + piece])]
    return np.concatenate([*blocks, *downmix.finish()])


def syllables(seconds: float, seed: int = 1) -> Any:
    """Noise that comes and goes four times a second."""
    count = int(seconds * RATE)
    envelope = (np.arange(count) // (RATE // 8) % 2).astype(np.float32)
    return np.random.default_rng(seed).normal(0, 0.1, count).astype(np.float32) * envelope


def power(samples: Any) -> float:
    return float(np.mean(samples**2))


def test_push__one_channel_passes() -> None:
    """Mono is not touched."""
    voice = syllables(0.1)

    assert np.array_equal(mix(voice[:, None]), voice)


def test_push__silent_channel_costs_no_level() -> None:
    """A microphone that is not connected does not halve the other one."""
    voice = syllables(2)

    mixed = mix(np.stack([np.zeros_like(voice), voice], axis=1))

    assert power(mixed[RATE:]) == pytest.approx(power(voice[RATE:]), rel=0.05)


def test_push__steady_noise_is_left_out() -> None:
    """Beside a voice, a channel with road noise only is dropped."""
    voice = syllables(3)
    noise = np.random.default_rng(2).normal(0, 0.05, voice.size).astype(np.float32)

    mixed = mix(np.stack([voice, noise], axis=1))

    assert power(mixed[RATE:] - voice[RATE:]) < 0.02 * power(noise)


def test_push__two_speakers_are_both_kept() -> None:
    """An interview with one person per channel loses nobody."""
    left, right = syllables(4), syllables(4, seed=5)
    left[2 * RATE :], right[: 2 * RATE] = 0, 0

    mixed = mix(np.stack([left, right], axis=1))

    assert power(mixed[: 2 * RATE]) > 0.2 * power(left[: 2 * RATE])
    assert power(mixed[2 * RATE :]) > 0.2 * power(right[2 * RATE :])


def test_push__swapped_wires_do_not_cancel() -> None:
    """Two channels of opposite sign are not added up to nothing."""
    voice = syllables(2)

    mixed = mix(np.stack([voice, -voice], axis=1))

    assert power(mixed[RATE:]) > 0.5 * power(voice[RATE:])


@pytest.mark.parametrize("piece", [1, 333, 100_000])
def test_push__any_piece_size(piece: int) -> None:
    """The mix does not depend on how frames arrive."""
    frames = np.stack([syllables(0.5), syllables(0.5, seed=3)], axis=1)

    assert np.array_equal(mix(frames, piece), mix(frames))
    assert len(mix(frames, piece)) == len(frames)
