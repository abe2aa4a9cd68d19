# SPDX-License-Identifier: Apache-2.0
"""The detector's graphs: frames u8[height, width, 3] in place in, maps f32[h, w] out; it finds no boxes.

One graph takes any multiple of 32; a backend of fixed shapes has one graph per size, and the nearest one is taken.
"""

from __future__ import annotations

from math import log
from typing import Any

import cv2
import numpy as np

from dpfedge.backend.api import Array, Budget, Executable
from dpfedge.errors import StageError
from dpfedge.stage.answer import Answer
from dpfedge.stage.sizes import load_sizes

__all__ = ["Detector"]

_GRAPH = "detect"


class Detector:
    """Runs one model; `sizes` are its fixed shapes, none when it takes any."""

    def __init__(self, model: Any, budget: Budget, side_max: int) -> None:
        """ModelError when the model has no graph `detect` and no bucket of it."""
        self._multiple, self.side_max = int(model.config.get("multiple", 32)), side_max
        loaded, any_size = load_sizes(model, _GRAPH, budget, "text detector")
        self._by_size: dict[tuple[int, int], Executable] = {}
        self._any: Executable | None = loaded[0] if any_size else None
        for graph in loaded if self._any is None else ():
            height, width = graph.inputs[0].dims[:2]
            self._by_size[int(height), int(width)] = graph
        self._scaled = np.empty((0, 0, 3), np.uint8)
        self._answer = Answer()

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(height, width) of every fixed shape."""
        return tuple(self._by_size)

    def size_for(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(height, width) that a frame of `shape` is brought to; its own when the model takes it as it is."""
        height, width = shape[:2]
        if self._any is None:
            return min(self._by_size, key=lambda size: _unlike(size, (height, width)))
        shrink = min(1.0, self.side_max / max(height, width))
        most = max(self.side_max // self._multiple, 1)
        sides = [min(max(round(side * shrink / self._multiple), 1), most) * self._multiple for side in (height, width)]
        return sides[0], sides[1]

    def run(self, frame: Array) -> Array:
        """The map of a frame, of the size that `size_for` says; StageError when it holds what is no number.

        It and the frame are held until `release`, or the next run.
        """
        size = self.size_for(frame.shape)
        graph = self._any or self._by_size[size]
        found = self._answer.of(graph, self._fitted(frame, size))
        if not np.isfinite(found).all():
            raise StageError(
                "the model gave a map that is no numbers", stage="text-detect", found=f"graph {graph.name}"
            )
        return found

    def release(self) -> None:
        """The map was looked at."""
        self._answer.release()

    def _fitted(self, frame: Array, size: tuple[int, int]) -> Array:
        if frame.shape[:2] == size:
            return frame
        if self._scaled.shape[:2] != size:
            self._scaled = np.empty((*size, 3), np.uint8)
        shrinks = size[0] * size[1] < frame.shape[0] * frame.shape[1]
        cv2.resize(frame, size[::-1], dst=self._scaled, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
        return self._scaled


def _unlike(size: tuple[int, int], frame: tuple[int, int]) -> float:
    """How much a frame changes when it is brought to `size`: stretching it is worse than shrinking it."""
    high, wide = log(size[0] / frame[0]), log(size[1] / frame[1])
    return 2 * abs(high - wide) + abs(high + wide)
