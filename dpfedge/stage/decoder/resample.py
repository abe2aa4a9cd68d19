# SPDX-License-Identifier: Apache-2.0
"""Mono samples of any rate in, 16 kHz out, as a stream; it mixes no channels."""

from __future__ import annotations

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.stage.decoder.config import RATE

__all__ = ["Resampler"]

_NOTHING = np.empty(0, np.float32)


class Resampler:
    """Keeps the filter's state between pieces; the result does not depend on how the samples were cut."""

    def __init__(self, rate: int) -> None:
        self._stream = None
        if rate != RATE:
            import soxr

            self._stream = soxr.ResampleStream(rate, RATE, 1, dtype="float32", quality="HQ")

    def push(self, samples: Array) -> Array:
        """f32[m] at 16 kHz for f32[n]; the filter holds back some milliseconds."""
        return samples if self._stream is None else self._stream.resample_chunk(np.ascontiguousarray(samples))

    def finish(self) -> Array:
        """What the filter held back."""
        return _NOTHING if self._stream is None else self._stream.resample_chunk(_NOTHING, last=True)
