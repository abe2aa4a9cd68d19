# SPDX-License-Identifier: Apache-2.0
"""The reader's graphs: a line u8[rows, width, 3] in place in, shares f32[steps, classes] out; it decodes nothing.

One graph takes any width; a backend of fixed shapes has one graph per width, and a line is filled up to the next.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Budget, Executable
from dpfedge.errors import StageError
from dpfedge.stage.answer import Answer
from dpfedge.stage.sizes import load_sizes

__all__ = ["Reader"]

_GRAPH = "read"
_GREY = 128  # nothing, as the model was trained: between black and white


class Reader:
    """Runs one model; `widths` are its fixed shapes, none when it takes any."""

    def __init__(self, model: Any, budget: Budget) -> None:
        """ModelError when the model has no graph `read` and no bucket of it."""
        loaded, any_size = load_sizes(model, _GRAPH, budget, "text reader")
        self.rows, self._step = int(loaded[0].inputs[0].dims[0]), int(model.config.get("step", 8))
        self._any: Executable | None = loaded[0] if any_size else None
        fixed = loaded if self._any is None else []
        self._by_width = {int(graph.inputs[0].dims[1]): graph for graph in fixed}
        self._answer = Answer()
        self._filled = {
            width: np.full((self.rows, width, 3), _GREY, np.uint8) for width in sorted(self._by_width)
        }  # kept from line to line

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of the fixed shapes, rising."""
        return tuple(self._filled)

    def run(self, line: Array) -> Array:
        """The shares of one line, one row per `step` columns; StageError for a line of another height or too wide.

        They and the line are held until `release`, or the next run.
        """
        if line.shape[0] != self.rows:
            remedy = f"set rows: {self.rows} of the stage that cuts the lines"
            raise StageError("lines of another height", stage="text-read", found=line.shape[0], allowed=self.rows,
                             remedy=remedy)  # fmt: skip
        if self._any is not None:
            return self._answer.of(self._any, line)
        width = line.shape[1]
        bucket = next((size for size in self._filled if size >= width), None)
        if bucket is None:
            allowed = f"at most {max(self._filled)}"
            raise StageError("the line is too wide", stage="text-read", found=width, allowed=allowed,
                             remedy="set line_columns of the stage that cuts the lines")  # fmt: skip
        filled, graph = self._filled[bucket], self._by_width[bucket]
        filled[:, :width], filled[:, width:] = line, _GREY
        return self._answer.of(graph, filled)[: -(-width // self._step)]

    def release(self) -> None:
        """The shares were looked at."""
        self._answer.release()
