# SPDX-License-Identifier: Apache-2.0
"""Frames in, how much louder a quiet speaker must be made out: once per frame for the voice activity model, once per
utterance for the recogniser. It makes nothing quieter.
"""

from __future__ import annotations

import numpy as np

from dpfedge.backend.api import Array

__all__ = ["Level"]

_TARGET = 0.05  # peak that both models know from their training; at a tenth of it they begin to miss words
_LARGEST = 24.0
_FORGET = 0.9927  # per frame: half in 3 seconds
_QUIET = 0.01  # an utterance whose peak is above this one is left alone


class Level:
    """Follows the peak of one stream."""

    def __init__(self) -> None:
        self._peak = 0.0

    def follow(self, frame: Array) -> None:
        """Take the next frame."""
        self._peak = max(float(np.abs(frame).max()), self._peak * _FORGET, 1e-9)

    @property
    def now(self) -> float:
        """Gain for the newest frame, at least 1."""
        return min(max(_TARGET / self._peak, 1.0), _LARGEST)

    @property
    def utterance(self) -> float:
        """Gain for an utterance that begins now: 1 unless its speaker is very quiet."""
        return self.now if self._peak < _QUIET else 1.0
