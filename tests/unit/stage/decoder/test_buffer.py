# SPDX-License-Identifier: Apache-2.0
"""The buffer frames are written into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpfedge.stage.decoder.buffer import FrameBuffer
from dpfedge.stage.decoder.config import FRAME
from dpfedge.stage.decoder.vad import CONTEXT, WINDOW


@pytest.fixture
def buffer() -> FrameBuffer:
    return FrameBuffer(np.full(8 * FRAME, np.nan, np.float32))


def fill(buffer: FrameBuffer, samples: Any) -> list[Any]:
    windows = []
    while samples.size:
        samples = samples[buffer.write(samples) :]
        if (window := buffer.window()) is not None:
            windows.append(window.copy())
            buffer.accept()
    return windows


def test_window__frames_overlap_by_the_context(buffer: FrameBuffer) -> None:
    """Each window holds the end of the one before it; the first begins with silence."""
    windows = fill(buffer, np.arange(1, 3 * FRAME + 1, dtype=np.float32))

    assert [window.size for window in windows] == [WINDOW] * 3
    assert not windows[0][:CONTEXT].any()
    assert np.array_equal(windows[1][:CONTEXT], windows[0][-CONTEXT:])


def test_write__stops_at_the_frame(buffer: FrameBuffer) -> None:
    """A block never runs past the frame being filled."""
    assert buffer.write(np.ones(700, np.float32)) == FRAME
    assert buffer.partial == FRAME


def test_keep__moves_the_end_to_the_front(buffer: FrameBuffer) -> None:
    """The last samples survive, and the next window continues them."""
    fill(buffer, np.arange(4 * FRAME, dtype=np.float32))
    buffer.keep(2 * FRAME)

    windows = fill(buffer, np.arange(4 * FRAME, 5 * FRAME, dtype=np.float32))

    assert buffer.array[0] == 2 * FRAME
    assert np.array_equal(np.diff(windows[0]), np.ones(WINDOW - 1))


def test_pad__context_follows_the_silence(buffer: FrameBuffer) -> None:
    """Zeros lie behind the words; the next window does not see them."""
    fill(buffer, np.arange(2 * FRAME, dtype=np.float32))

    end = buffer.pad(100)

    assert end == CONTEXT + 2 * FRAME + 100
    assert not buffer.array[end - 100 : end].any()
    windows = fill(buffer, np.arange(2 * FRAME, 3 * FRAME, dtype=np.float32))
    assert np.array_equal(np.diff(windows[0]), np.ones(WINDOW - 1))


def test_room_for__counts_a_frame(buffer: FrameBuffer) -> None:
    """There is room as long as one more frame fits."""
    fill(buffer, np.zeros(6 * FRAME, np.float32))

    assert buffer.room_for(0)
    assert not buffer.room_for(FRAME)
