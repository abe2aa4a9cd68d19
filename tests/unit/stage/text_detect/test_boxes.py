# SPDX-License-Identifier: Apache-2.0
"""From the detector's map to boxes."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from dpfedge.stage.text_detect.boxes import Boxes, find_boxes


def found(drawn: np.ndarray, frame: tuple[int, int] | None = None, **changed: float) -> Boxes:
    """With the usual settings."""
    settings = {"threshold": 0.3, "box_threshold": 0.5, "unclip": 1.6, "most": 64, **changed}
    return find_boxes(drawn, frame or drawn.shape, **settings)  # type: ignore[arg-type]


def bar(
    left: int, top: int, right: int, low: int, *, value: float = 0.9, size: tuple[int, int] = (96, 192)
) -> np.ndarray:
    """A map with one blob."""
    drawn = np.zeros(size, np.float32)
    drawn[top:low, left:right] = value
    return drawn


def test_box__grows_by_area_over_perimeter() -> None:
    """A blob of 101 × 21 (the thresholded one is joined by one pixel) grows by 1.6 · 101 · 21 / 244 on each side."""
    boxes = found(bar(40, 40, 140, 60))
    grow = 1.6 * 100 * 20 / (2 * (100 + 20))

    assert len(boxes.scores) == 1
    np.testing.assert_allclose(boxes.corners[0, 0], (39.5 - grow, 39.5 - grow), atol=1.5)
    np.testing.assert_allclose(boxes.corners[0, 2], (139.5 + grow, 59.5 + grow), atol=1.5)
    assert boxes.scores[0] == pytest.approx(0.9, abs=0.1)


def test_box__in_pixels_of_the_frame() -> None:
    """A map of another size is scaled; what leaves the frame is clipped."""
    boxes = found(bar(40, 40, 140, 60), frame=(192, 384))
    edge = found(bar(0, 0, 100, 20))

    np.testing.assert_allclose(boxes.corners[0] / 2, found(bar(40, 40, 140, 60)).corners[0], atol=0.6)
    assert edge.corners.min() == 0


def test_box__unsure_small_and_none() -> None:
    """Noise, weak blobs and empty maps give nothing; the surest are kept when there are too many."""
    assert len(found(bar(10, 10, 12, 12)).scores) == 0
    assert len(found(bar(10, 10, 80, 30, value=0.4)).scores) == 0
    assert found(np.zeros((32, 32), np.float32)).corners.shape == (0, 4, 2)
    two = np.maximum(bar(10, 10, 80, 30, value=0.7), bar(10, 60, 80, 80, value=0.9))
    assert found(two, most=1).scores == pytest.approx([0.9], abs=0.1)
    assert found(two, most=1).corners[0, 0, 1] > 40


def test_boxes__in_reading_order() -> None:
    """Rows from the top, left before right."""
    drawn = np.maximum.reduce([bar(110, 12, 180, 30), bar(10, 10, 80, 30), bar(10, 60, 80, 80)])

    boxes = found(drawn)

    assert (boxes.corners[:, 2, 0] > 100).tolist() == [False, True, False]
    assert (boxes.corners[:, 2, 1] > 50).tolist() == [False, False, True]


@pytest.mark.parametrize("angle", [-20, 0, 20])
def test_box__slanted(angle: int) -> None:
    """Corners go clockwise from the upper left one, along the text."""
    drawn = np.zeros((200, 200), np.float32)
    points = cv2.boxPoints(((100, 100), (120, 24), angle)).astype(np.int32)
    cv2.fillPoly(drawn, [points], (0.9,))

    corners = found(drawn).corners[0]

    along = corners[1] - corners[0]
    assert np.degrees(np.arctan2(along[1], along[0])) == pytest.approx(angle, abs=2)
    assert np.linalg.norm(corners[3] - corners[0]) < np.linalg.norm(along)
    assert corners[3, 1] > corners[0, 1]


def test_box__text_that_runs_downwards() -> None:
    """A high, narrow box is read from its upper right corner downwards."""
    corners = found(bar(80, 10, 100, 90)).corners[0]

    assert corners[0, 0] > corners[3, 0]
    assert corners[1, 1] > corners[0, 1]
