# SPDX-License-Identifier: Apache-2.0
"""The text detector: a frame where it lies in, one message of its lines out; it owns the model and reads no text.

A frame whose sides fit the model is read in place; any other is scaled into a picture of the stage's own first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from dpfedge.backend.api import Array, Budget
from dpfedge.errors import ModelError, StageError
from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.each import Each
from dpfedge.stage.live import adjusted
from dpfedge.stage.text_detect.boxes import Boxes, find_boxes
from dpfedge.stage.text_detect.config import LIVE, TextDetectConfig
from dpfedge.stage.text_detect.crops import cut_all, line_widths
from dpfedge.stage.text_detect.model import Detector
from dpfedge.stage.text_detect.ports import ports
from dpfedge.stage.text_lines import strip_bytes, write_lines

__all__ = ["TextDetectStage"]

_STEP = 8  # columns: the readers' step, so that a line ends with one


class TextDetectStage(Each):
    """Owns one PP-OCR detector."""

    name = "text-detect"

    ports = staticmethod(ports)

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        """`model` is a bound model of the family `ppocr-detect`; ModelError when it is not."""
        super().__init__(model, config, budget)
        if model is None:
            raise ModelError("the stage needs a model", where="stage text-detect", allowed="family ppocr-detect")
        self._config = TextDetectConfig.of(config)
        self._detector = Detector(model, budget, self._config.side_max)
        cv2.setNumThreads(budget.threads)
        self._counts: dict[int, dict[str, float]] = {}

    def warm(self) -> None:
        """Look at an empty picture and at one with a bar, so that everything has run."""
        picture = np.full((64, 96, 3), 255, np.uint8)
        picture[24:40, 16:80] = 0
        boxes = Boxes(np.array([[(16, 24), (80, 24), (80, 40), (16, 40)]], np.float32), np.ones(1, np.float32))
        self._find(picture)
        widths = self._widths(boxes)
        message = np.empty(strip_bytes(widths, self._config.rows), np.uint8)
        self._fill(message, picture, boxes, widths)

    def facts(self) -> Mapping[str, Any]:
        """`name` of the model, and the `sizes` (height, width) of its fixed shapes; none: any."""
        return {"name": self.model.name, "sizes": [list(size) for size in self._detector.sizes]}

    def adjust(self, settings: Mapping[str, Any]) -> None:
        """Work as configured, except for these settings (of `LIVE`), from the next frame on."""
        self._config = TextDetectConfig.of(adjusted(self.config, settings, LIVE, "stage text-detect"))
        self._detector.side_max = self._config.side_max

    def request(self, io: RequestIO) -> Steps:
        """See `Each`."""
        self._counts[io.key] = {"lines": 0, "left_out": 0, "scaled": 0, "detect_ms": 0.0, "cut_ms": 0.0}
        try:
            yield from super().request(io)
        finally:
            del self._counts[io.key]

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        """Lines found, those left out for want of room, frames that had to be scaled, and what it took."""
        return self._counts[io.key]

    def each(self, io: RequestIO, message: Message) -> Steps:
        """One frame: find its lines, then write them."""
        frame, counts, started = message.array(), self._counts[io.key], time.monotonic_ns()
        if frame.ndim != 3 or frame.shape[2] != 3 or frame.dtype != np.uint8 or not frame.size:
            found, allowed = f"{frame.dtype}{list(frame.shape)}", "u8[height, width, 3]"
            raise StageError("not a frame", stage="text-detect", found=found, allowed=allowed)
        counts["scaled"] += self._detector.size_for(frame.shape) != frame.shape[:2]
        boxes = self._find(frame)
        counts["detect_ms"] += (time.monotonic_ns() - started) / 1e6
        yield Wait.STEP
        if io.cancelled(message.turn):
            return
        widths = self._widths(boxes)
        counts["left_out"] += len(boxes.scores) - len(widths)
        boxes = Boxes(boxes.corners[: len(widths)], boxes.scores[: len(widths)])
        size = strip_bytes(widths, self._config.rows)
        slot = yield from io.loan("lines", (size,), "u8")
        started = time.monotonic_ns()
        self._fill(slot.array, frame, boxes, widths)
        slot.send(size, kind=Kind.DATA, turn=message.turn, captured_ns=message.captured_ns)
        counts["lines"] += len(widths)
        counts["cut_ms"] += (time.monotonic_ns() - started) / 1e6

    def _find(self, frame: Array) -> Boxes:
        config = self._config
        try:
            return find_boxes(
                self._detector.run(frame), frame.shape[:2], threshold=config.threshold,
                box_threshold=config.box_threshold, unclip=config.unclip, most=config.lines,
            )  # fmt: skip
        finally:
            self._detector.release()

    def _widths(self, boxes: Boxes) -> list[int]:
        """Columns of the lines, in reading order, as many as one message has room for."""
        config = self._config
        widths = line_widths(boxes.corners, config.rows, _STEP, min(config.line_columns, config.columns))
        fits = np.cumsum(widths) <= config.columns
        return widths[: int(np.count_nonzero(fits))]

    def _fill(self, message: Array, frame: Array, boxes: Boxes, widths: list[int]) -> None:
        places = write_lines(message, boxes.corners, boxes.scores, widths, self._config.rows, frame.shape[:2])
        cut_all(frame, boxes.corners, places)
