# SPDX-License-Identifier: Apache-2.0
"""Chunks of samples against the whole clause."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import StageError
from dpfedge.stage.voice.synthesiser import SplitVoice, WholeVoice, windows, write_pcm


def feeds(count: int) -> dict[str, Any]:
    ids = np.arange(count, dtype=np.int64).reshape(1, -1) % 40
    return {"input": ids, "input_lengths": np.array([count]), "scales": np.ones(3, np.float32)}


@pytest.mark.parametrize("count", [1, 3, 5, 20, 77])
def test_split__equals_the_whole(graphs: Any, driver: Any, count: int) -> None:
    """Overlapped windows give the samples of one run over everything."""
    model = driver.Model("toy", graphs, {})
    load = [model.load(name, Budget()) for name in ("encode", "decode", "synthesise")]
    split = SplitVoice(load[0], load[1], largest=64, overlap=10)
    whole = WholeVoice(load[2], 10_000)
    parts = [chunk.copy() for chunk in split.chunks(feeds(count), 16)]
    joined = np.concatenate([chunk.copy() for chunk in whole.chunks(feeds(count), 16)])
    np.testing.assert_allclose(np.concatenate(parts), joined, atol=1e-6)
    assert parts[0].size == min(16, 4 * count) * 256


@pytest.mark.parametrize("frames", [1, 15, 16, 17, 100, 1000])
def test_windows__cover_each_frame_once(frames: int) -> None:
    """Chunks follow one another; windows reach the overlap or the border."""
    rows = list(windows(frames, 16, 64, 10))
    assert [row[2] for row in rows] == [0, *[row[3] for row in rows[:-1]]]
    assert rows[-1][3] == frames
    assert all(low <= max(0, start - 10) and high == min(frames, stop + 10) for low, high, start, stop in rows)
    assert max(high - low for low, high, _, _ in rows) <= 84


def test_write_pcm__scales_and_clips_in_place() -> None:
    """The factor of piper-tts; louder samples stay at the border."""
    samples, out = np.array([0, 0.5, -1, 3, -3], np.float32), np.zeros(5, np.int16)
    write_pcm(samples, 1.0, np.empty(8, np.float32), out)
    assert out.tolist() == [0, 16383, -32767, 32767, -32767]


def test_chunks__samples_that_are_no_numbers(graphs: Any, driver: Any) -> None:
    """A model gone wrong is an error, not noise."""
    whole = WholeVoice(driver.Model("toy", graphs, {}).load("synthesise", Budget()), 1000)
    noise = np.full((1, 1, 1, 256), np.nan, np.float32)
    call = SimpleNamespace(set_input=lambda name, array: None, run=lambda: None, output=lambda name: noise)
    whole._graph.bind = lambda: call  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(StageError, match="no numbers"):
        next(whole.chunks(feeds(3), 16))
