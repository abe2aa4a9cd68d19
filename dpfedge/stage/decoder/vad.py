# SPDX-License-Identifier: Apache-2.0
"""Voice activity of one stream with the Silero model: windows of samples in, probabilities of speech out.

It decides nothing about turns (`segmenter.py`).
"""

from __future__ import annotations

import time

import numpy as np

from dpfedge.backend.api import Array, Binding, Executable
from dpfedge.stage.decoder.config import FRAME, RATE

__all__ = ["CONTEXT", "WINDOW", "VoiceActivity"]

CONTEXT = 64
"""Samples before a frame that the model looks at again."""
WINDOW = CONTEXT + FRAME
_STATE = (2, 1, 128)


class VoiceActivity:
    """The model's state for one stream.

    Two prepared calls read each other's state: call A reads state 0 and writes state 1, call B the reverse, so that the
    state is never copied.
    """

    def __init__(self, executable: Executable) -> None:
        self._probability = np.zeros((1, 1), np.float32)
        self._window = np.zeros((1, WINDOW), np.float32)
        self._rate = np.array(RATE, np.int64)
        states = (np.zeros(_STATE, np.float32), np.zeros(_STATE, np.float32))
        names = {spec.name for spec in executable.inputs}
        self._now = self._prepare(executable, states[0], states[1], names)
        self._next = self._prepare(executable, states[1], states[0], names)
        self.busy_ns = 0

    def _prepare(self, executable: Executable, state: Array, following: Array, names: set[str]) -> Binding:
        binding = executable.bind()
        binding.set_input("input", self._window)
        binding.set_input("state", state)
        if "sr" in names:
            binding.set_input("sr", self._rate)
        binding.set_output("output", self._probability)
        binding.set_output("stateN", following)
        return binding

    def probability(self, window: Array, gain: float = 1.0) -> float:
        """That the last FRAME samples of f32[WINDOW] × `gain` hold speech, 0..1; frames must follow each other."""
        started = time.perf_counter_ns()
        np.multiply(window, np.float32(gain), out=self._window[0])
        self._now.run()
        self._now, self._next = self._next, self._now
        self.busy_ns += time.perf_counter_ns() - started
        return float(self._probability[0, 0])
