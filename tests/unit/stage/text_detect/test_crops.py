# SPDX-License-Identifier: Apache-2.0
"""Lines cut out of frames, straight into foreign memory."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from dpfedge.errors import StageError
from dpfedge.stage.text_detect import crops
from dpfedge.stage.text_detect.crops import Cutter, cut_all, line_widths


def corners(left: float, top: float, right: float, low: float) -> np.ndarray:
    """Upright, as f32[4,2]."""
    return np.array([(left, top), (right, top), (right, low), (left, low)], np.float32)


def gradient(height: int = 200, width: int = 400) -> np.ndarray:
    """Red grows to the right, green downwards; read-only, as a link gives it."""
    frame = np.zeros((height, width, 3), np.uint8)
    frame[:, :, 0] = np.linspace(0, 255, width)[None]
    frame[:, :, 1] = np.linspace(0, 255, height)[:, None]
    frame.flags.writeable = False
    return frame


def test_widths__proportions_steps_and_bounds() -> None:
    """As wide as the line is at that height, in steps, at least one, squeezed where it is too long."""
    boxes = np.array(
        [corners(0, 0, 100, 20), corners(0, 0, 101, 20), corners(0, 0, 1, 30), corners(0, 0, 5000, 10)], np.float32
    )

    assert line_widths(boxes, 48, 8, 1600) == [240, 248, 8, 1600]
    assert line_widths(boxes, 48, 8, 1605)[3] == 1600
    assert line_widths(boxes[:0], 48, 8, 1600) == []


def test_cut__writes_where_it_is_told() -> None:
    """In place, with the frame's own pixels."""
    memory = np.full(64 + 48 * 96 * 3 + 64, 7, np.uint8)
    out = memory[64:-64].reshape(48, 96, 3)

    Cutter(gradient()).cut(corners(100, 50, 196, 98), out)

    assert out[0, 0].tolist()[:2] == pytest.approx([100 / 400 * 255, 50 / 200 * 255], abs=3)
    assert out[47, 95].tolist()[:2] == pytest.approx([195 / 400 * 255, 97 / 200 * 255], abs=3)
    assert (memory[:64] == 7).all()
    assert (memory[-64:] == 7).all()


def test_cut__turns_what_is_turned() -> None:
    """The line stands upright whatever its corners say."""
    frame = gradient()
    down = np.roll(corners(100, 20, 140, 180), -1, axis=0)
    out = np.empty((48, 192, 3), np.uint8)

    Cutter(frame).cut(down, out)

    assert out[24, 5, 1] < out[24, 186, 1]
    assert out[5, 96, 0] > out[42, 96, 0]


def test_cut__much_smaller_without_aliasing() -> None:
    """Stripes finer than the result become grey instead of a false pattern."""
    frame = np.zeros((800, 800, 3), np.uint8)
    frame[:, ::2] = 255
    out = np.empty((48, 48, 3), np.uint8)

    cut_all(frame, np.array([corners(0, 0, 799, 799)], np.float32), [out])

    assert abs(int(out.mean()) - 127) < 8
    assert out.std() < 30


def test_cut__is_never_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were OpenCV to write elsewhere, that is an error and no silent copy."""
    monkeypatch.setattr(cv2, "warpPerspective", lambda *arguments, dst, **settings: dst.copy())

    with pytest.raises(StageError, match="OpenCV did not write in place"):
        crops.Cutter(gradient()).cut(corners(0, 0, 96, 48), np.empty((48, 96, 3), np.uint8))
