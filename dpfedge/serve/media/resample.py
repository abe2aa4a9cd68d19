# SPDX-License-Identifier: Apache-2.0
"""16-bit mono samples at one rate in, the same sound at another rate out, piece by piece.

It keeps the pitch and changes nothing when both rates are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import soxr

__all__ = ["Resampler", "Samples"]

Samples = np.ndarray[Any, np.dtype[np.int16]]


class Resampler:
    """A streaming soxr resampler (HQ, linear phase); the pieces joined equal the whole."""

    def __init__(self, source_hz: int, target_hz: int) -> None:
        same = source_hz == target_hz
        self._stream = None if same else soxr.ResampleStream(source_hz, target_hz, 1, dtype="int16", quality="HQ")

    def feed(self, samples: Samples) -> Samples:
        """i16[n] in, i16[m] out; the filter holds back a few milliseconds. Unchanged rate: the same array."""
        if self._stream is None:
            return samples
        out: Samples = self._stream.resample_chunk(np.ascontiguousarray(samples))
        return out

    def flush(self) -> Samples:
        """What the filter still holds."""
        if self._stream is None:
            return np.zeros(0, np.int16)
        out: Samples = self._stream.resample_chunk(np.zeros(0, np.int16), last=True)
        return out
