# SPDX-License-Identifier: Apache-2.0
"""A frame and the boxes of its lines in, each line upright and of one height written where the caller says out.

The pixels go straight from the frame into the message's own memory; it finds no boxes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import StageError

__all__ = ["Cutter", "line_widths"]

_SMOOTH = 2.0  # a line shrunk more than this is taken from a halved frame, or its strokes would alias


def line_widths(corners: Array, rows: int, step: int, most: int) -> list[int]:
    """Columns of each line of f32[n,4,2] at `rows` rows: as wide as it is, rounded up to `step`, `most` at most."""
    wide = np.linalg.norm(corners[:, 1] - corners[:, 0], axis=1)
    high = np.maximum(np.linalg.norm(corners[:, 3] - corners[:, 0], axis=1), 1.0)
    columns = np.ceil(wide * rows / high / step).astype(int) * step
    return [int(number) for number in np.clip(columns, step, most // step * step)]


class Cutter:
    """Cuts lines out of one frame u8[height, width, 3]."""

    def __init__(self, frame: Array) -> None:
        self._halved: list[Array] = [frame]

    def cut(self, corners: Array, out: Array) -> None:
        """Write the line inside f32[4,2] into u8[rows, columns, 3] in place."""
        rows, columns = out.shape[:2]
        level, high = 0, float(np.linalg.norm(corners[3] - corners[0]))
        while high > _SMOOTH * rows:
            level, high = level + 1, high / 2
        source = self._level(level)
        scaled = np.asarray(corners, np.float32) / np.float32(2**level)
        target = np.array([(0, 0), (columns, 0), (columns, rows), (0, rows)], np.float32)
        turn = cv2.getPerspectiveTransform(scaled, target)
        flags, border = cv2.INTER_CUBIC, cv2.BORDER_REPLICATE
        written = cv2.warpPerspective(source, turn, (columns, rows), dst=out, flags=flags, borderMode=border)
        if _address(written) != _address(out):
            where, found = "stage text-detect", f"{out.dtype}{list(out.shape)}"
            raise StageError("OpenCV did not write in place", where=where, found=found)

    def _level(self, level: int) -> Array:
        """The frame, halved `level` times."""
        while len(self._halved) <= level:
            self._halved.append(cv2.pyrDown(self._halved[-1]))
        return self._halved[level]


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def cut_all(frame: Array, corners: Array, places: Sequence[Array]) -> None:
    """Every line of f32[n,4,2] into its place."""
    cutter = Cutter(frame)
    for box, place in zip(corners, places, strict=True):
        cutter.cut(box, place)
