# SPDX-License-Identifier: Apache-2.0
"""Frames of several channels in, one channel out: the mean of those that carry speech; it changes no rate.

Speech swings by tens of decibels within a second, road noise hardly does, and a microphone that is not connected has no
level at all. Channels are judged by that every 20 ms and faded in and out, so that nobody's words are cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.stage.decoder.pcm import Frames

__all__ = ["Downmix"]

_BLOCK_S = 0.02
_SILENT_DB = 40.0  # below the loudest channel
_STEADY_DB = 8.0  # a channel that swings less is noise …
_SPEAKING_DB = 15.0  # … once another one swings more
_DECAY_DB = 0.1  # per block: peaks are forgotten and floors rise within seconds
_CANCELLED = 0.02  # the mean has less of the loudest channel's power: one microphone has its wires swapped


class Downmix:
    """Mono from frames of `channels` channels at `rate` Hz; the result does not depend on how the frames were cut."""

    def __init__(self, rate: int, channels: int) -> None:
        self._channels = channels
        self._block = max(1, int(rate * _BLOCK_S))
        self._rest = np.empty((0, channels), np.float32)
        self._before = np.zeros((1, channels), np.float32)
        self._weights = np.full(channels, 1 / channels, np.float32)
        self._peak = np.full(channels, -120.0)
        self._floor = np.full(channels, 0.0)

    def push(self, frames: Frames) -> Iterator[Array]:
        """f32[n] for every whole block that is complete now."""
        if self._channels == 1:
            yield frames[:, 0]
            return
        frames = np.concatenate([self._rest, frames]) if len(self._rest) else frames
        whole = len(frames) - len(frames) % self._block
        for start in range(0, whole, self._block):
            yield self._mix(frames[start : start + self._block])
        self._rest = frames[whole:].copy()

    def finish(self) -> Iterator[Array]:
        """The part of a block that is left."""
        if len(self._rest):
            yield self._mix(self._rest)

    def _mix(self, block: Frames) -> Array:
        before, self._weights = self._weights, self._judge(block)
        ramp = np.linspace(0, 1, len(block), dtype=np.float32)[:, None]
        mixed: Array = np.einsum("nc,nc->n", block, before + (self._weights - before) * ramp)
        return mixed

    def _judge(self, block: Frames) -> Array:
        """Each channel's share: equal for those that speak, none for the others."""
        slopes = np.diff(block, axis=0, prepend=self._before)  # plays down rumble, where road noise has its power
        self._before = block[-1:].copy()
        level = 10 * np.log10(np.mean(slopes * slopes, axis=0) + 1e-12)
        self._peak = np.maximum(self._peak - _DECAY_DB, level)
        self._floor = np.minimum(self._floor + _DECAY_DB, level)
        swing = self._peak - self._floor
        chosen = self._peak > self._peak.max() - _SILENT_DB
        if swing[chosen].max() > _SPEAKING_DB:
            chosen &= swing > _STEADY_DB
        if np.mean(slopes[:, chosen].mean(axis=1) ** 2) < _CANCELLED * np.mean(slopes * slopes, axis=0).max():
            chosen = np.arange(self._channels) == self._peak.argmax()
        shares: Array = (chosen / chosen.sum()).astype(np.float32)
        return shares
