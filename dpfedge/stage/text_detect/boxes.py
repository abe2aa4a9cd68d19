# SPDX-License-Identifier: Apache-2.0
"""The detector's map in, boxes around lines of text out; it sees no picture.

Differentiable binarization (arXiv 1911.08947) predicts text drawn in from its edge: each blob of the thresholded map is
one line, whose rectangle grows by area · ratio / perimeter (ibid., section 3.4). PP-OCR (arXiv 2009.09941) grows a
rectangle as a polygon with round corners and takes the least rectangle around that, which is the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cv2
import numpy as np

from dpfedge.stage.text_lines import reading_order

__all__ = ["Boxes", "find_boxes"]

Floats = np.ndarray[Any, np.dtype[np.float32]]
_BLOB_MIN = 3  # pixels of the map on the short side, as PP-OCR; smaller blobs are noise
_UPRIGHT = 1.5  # a box this much higher than wide holds a line that runs downwards
_JOIN = np.ones((2, 2), np.uint8)


class Boxes(NamedTuple):
    """Lines of a frame: `corners` f32[n,4,2] (x, y; from where reading starts, clockwise), `scores` f32[n]."""

    corners: Floats
    scores: Floats


def find_boxes(
    found: Floats, frame: tuple[int, int], *, threshold: float, box_threshold: float, unclip: float, most: int
) -> Boxes:
    """The boxes of a map f32[h,w] in pixels of a frame of (height, width), in reading order; at most `most`."""
    mask = cv2.dilate((found > threshold).view(np.uint8), _JOIN)
    blobs, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    corners, scores = [], []
    for blob in blobs:
        if len(blob) < _BLOB_MIN:
            continue
        centre, size, angle = cv2.minAreaRect(blob)
        if min(size) < _BLOB_MIN:
            continue
        score = _score(found, np.asarray(cv2.boxPoints((centre, size, angle)), np.float32))
        if score >= box_threshold:
            grow = size[0] * size[1] * unclip / (size[0] + size[1])  # twice area · ratio / perimeter: on both sides
            corners.append(cv2.boxPoints((centre, (size[0] + grow, size[1] + grow), angle)))
            scores.append(score)
    if not corners:
        return Boxes(np.empty((0, 4, 2), np.float32), np.empty(0, np.float32))
    boxes = _in_frame(np.asarray(corners, np.float32), found.shape, frame)
    certain = np.argsort(-np.asarray(scores), kind="stable")[:most]
    order = certain[reading_order(boxes[certain])]
    return Boxes(boxes[order], np.asarray(scores, np.float32)[order])


def _score(found: Floats, box: Floats) -> float:
    """Mean of the map inside a box."""
    height, width = found.shape
    left, top = np.clip(np.floor(box.min(axis=0)).astype(int), 0, (width - 1, height - 1))
    right, low = np.clip(np.ceil(box.max(axis=0)).astype(int), 0, (width - 1, height - 1))
    mask = np.zeros((low - top + 1, right - left + 1), np.uint8)
    cv2.fillPoly(mask, [(box - (left, top)).astype(np.int32)], (1,))
    return float(cv2.mean(found[top : low + 1, left : right + 1], mask)[0])


def _in_frame(corners: Floats, shape: tuple[int, ...], frame: tuple[int, int]) -> Floats:
    """Scaled to the frame and clipped to it, corners from where reading starts, clockwise."""
    scale = np.array((frame[1] / shape[1], frame[0] / shape[0]), np.float32)
    boxes = np.clip(corners * scale, 0, np.array((frame[1] - 1, frame[0] - 1), np.float32))
    by_x = np.take_along_axis(boxes, np.argsort(boxes[:, :, :1], axis=1, kind="stable"), axis=1)
    left, right = (
        np.take_along_axis(half, np.argsort(half[:, :, 1:], axis=1, kind="stable"), axis=1)
        for half in (by_x[:, :2], by_x[:, 2:])
    )
    ordered = np.stack((left[:, 0], right[:, 0], right[:, 1], left[:, 1]), axis=1)
    wide = np.linalg.norm(ordered[:, 1] - ordered[:, 0], axis=1)
    high = np.linalg.norm(ordered[:, 3] - ordered[:, 0], axis=1)
    turned = (high >= _UPRIGHT * wide)[:, None, None]
    return np.ascontiguousarray(np.where(turned, np.roll(ordered, -1, axis=1), ordered), np.float32)
