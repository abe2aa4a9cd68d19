# SPDX-License-Identifier: Apache-2.0
"""A one-pole high-pass over frames of fixed length, in place: takes a constant offset and rumble away.

y[n] = x[n] − x[n−1] + r·y[n−1], evaluated as two small matrix products per frame because NumPy has no recursive filter.
"""

from __future__ import annotations

import math

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.stage.decoder.config import FRAME, RATE

__all__ = ["HighPass"]

_ROW = 32  # samples filtered by one row of the product; FRAME is a multiple


class HighPass:
    """Filter state of one stream."""

    def __init__(self, hertz: float) -> None:
        self._pole = math.exp(-2 * math.pi * hertz / RATE) if hertz else 0.0
        self._rows = _powers(self._pole, _ROW)
        self._carry = _powers(self._pole**_ROW, FRAME // _ROW)
        self._decay = self._pole ** np.arange(1, _ROW + 1)
        self._last_in = self._last_out = 0.0
        self._started = False

    def filter(self, frame: Array) -> None:
        """Filter f32[FRAME] in place."""
        if not self._pole:
            return
        if not self._started:  # an offset from the first sample on must not begin with a step
            self._last_in, self._started = float(frame[0]), True
        steps = np.diff(frame.astype(np.float64), prepend=self._last_in).reshape(-1, _ROW)
        self._last_in = float(frame[-1])
        rows = steps @ self._rows
        ends = rows[:, -1].copy()
        ends[0] += self._pole**_ROW * self._last_out
        ends = ends @ self._carry
        starts = np.concatenate(([self._last_out], ends[:-1]))
        frame[:] = (rows + np.outer(starts, self._decay)).reshape(-1)
        self._last_out = float(ends[-1])


def _powers(pole: float, size: int) -> Array:
    """M[j, i] = pole^(i−j) for i ≥ j: a row times M is that row filtered from rest."""
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]
    return np.where(distance >= 0, pole ** np.maximum(distance, 0).astype(np.float64), 0.0)
