# SPDX-License-Identifier: Apache-2.0
"""Samples written one behind the other into memory that somebody else owns: a private array, or the slot of a link.

It knows no speech. A frame and the context before it always lie together, so that the model reads them in place.
"""

from __future__ import annotations

from dpfedge.backend.api import Array
from dpfedge.stage.decoder.config import FRAME
from dpfedge.stage.decoder.vad import CONTEXT

__all__ = ["FrameBuffer"]


class FrameBuffer:
    """A filling f32[n]; `used` samples are complete frames."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.used = self._fill = CONTEXT
        array[:CONTEXT] = 0

    @property
    def partial(self) -> int:
        """Samples of the frame that is not complete yet."""
        return self._fill - self.used

    def room_for(self, samples: int) -> bool:
        """Whether another frame and `samples` fit behind it."""
        return self.used + FRAME + samples <= self.array.size

    def write(self, block: Array) -> int:
        """Write what the current frame still takes of f32[n]; returns how many samples that were."""
        count = min(block.size, self.used + FRAME - self._fill)
        self.array[self._fill : self._fill + count] = block[:count]
        self._fill += count
        return count

    def window(self) -> Array | None:
        """The frame just completed with the context before it, f32[WINDOW] in place; None while it is incomplete."""
        return self.array[self.used - CONTEXT : self._fill] if self.partial == FRAME else None

    def accept(self) -> None:
        """Begin the next frame."""
        self.used = self._fill

    def keep(self, samples: int) -> None:
        """Move the last `samples` complete ones to the front and forget those before them."""
        self.take(self.array[max(0, self.used - max(samples, CONTEXT)) : self.used])

    def take(self, samples: Array) -> None:
        """Begin again with f32[n], n ≥ CONTEXT; they may lie in this buffer."""
        self.array[: samples.size] = samples
        self.used = self._fill = samples.size

    def pad(self, silence: int) -> int:
        """Write `silence` zeros, then the context again; returns how many samples lie before that context."""
        end = self.used + silence
        context = self.array[self.used - CONTEXT : self.used].copy()
        self.array[self.used : end] = 0
        self.array[end : end + CONTEXT] = context
        self.used = self._fill = end + CONTEXT
        return end
