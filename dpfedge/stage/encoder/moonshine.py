# SPDX-License-Identifier: Apache-2.0
"""The Moonshine recogniser: samples in place in, token ids out, one bounded step at a time.

`encode` turns audio into features once; `decode_first` computes their keys and values and the first token, and
`decode_step` each later one from a cache that the backend hands from run to run. It knows no text.
Source: Moonshine, arXiv 2410.15608; ports: dpfedge/compiler/GRAPHS.md.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import field
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Binding, Budget
from dpfedge.errors import ModelError
from dpfedge.records import dataclass
from dpfedge.stage.api import Wait

__all__ = ["SAMPLES_MIN", "Moonshine", "Recognition"]

_RATE = 16000
_LOOP_TOKENS = 12
SAMPLES_MIN = 1023
"""Shorter audio gives no feature: the three convolutions need this many samples."""
_GRAPHS = ("encode", "decode_first", "decode_step")


@dataclass(slots=True)
class Recognition:
    """What one run found and cost; grows while it runs."""

    samples: int
    tokens: list[int] = field(default_factory=list)
    encode_ns: int = 0
    decode_ns: int = 0
    stopped: str = ""
    """`end`, `length` or `repeat`; empty while it runs or when it was given up."""

    @property
    def cost_ms(self) -> float:
        """Processor time of both parts."""
        return (self.encode_ns + self.decode_ns) / 1e6


class Moonshine:
    """Three executables of one model; any number of recognitions may take turns, each with calls of its own."""

    def __init__(self, model: Any, budget: Budget, *, tokens_per_second: float, repeats: int) -> None:
        """`model` is a bound Moonshine model; ModelError when a graph is missing."""
        if missing := [name for name in _GRAPHS if name not in model.graphs]:
            where, found = f"model {model.name}", ", ".join(model.graphs)
            raise ModelError("a graph is missing", where=where, found=found, allowed=", ".join(missing))
        self._encode, self._first, self._step = (model.load(name, budget) for name in _GRAPHS)
        self._layers = sum(spec.name.startswith("past.") and spec.name.endswith(".key") for spec in self._step.inputs)
        if not self._layers:
            raise ModelError("no key cache", where=f"model {model.name}: graph decode_step", allowed="past.0.key, …")
        self._rate, self._repeats = tokens_per_second, repeats
        self._start = np.array([[model.config["start"]]], np.int64)
        self._end = int(model.config["eos"])

    def recognise(self, samples: Array) -> Generator[Wait, None, Recognition]:
        """Run over f32[n], n ≥ SAMPLES_MIN, 16 kHz; yields after the features and after each token.

        `samples` are read in place and must stay until the generator ends. Closing it gives the run up.
        """
        found = Recognition(samples.size)
        yield from self._run(samples, found)
        return found

    def _run(self, samples: Array, found: Recognition) -> Generator[Wait, None, None]:
        limit = max(2, int(samples.size * self._rate / _RATE))
        started = time.perf_counter_ns()
        encode = self._encode.bind()
        encode.set_input("samples", samples.reshape(1, -1))
        encode.run()
        found.encode_ns = time.perf_counter_ns() - started
        yield Wait.STEP
        started = time.perf_counter_ns()
        first = self._first.bind()
        first.set_input("tokens", self._start)
        first.set_input("features", encode.output("features"))
        first.run()
        step = self._prepare(first)
        call = first
        while True:
            token = int(call.output("token")[0, -1])
            found.decode_ns += time.perf_counter_ns() - started
            if token != self._end:
                found.tokens.append(token)
            found.stopped = self._stop(token, found.tokens, limit)
            if found.stopped:
                return
            yield Wait.STEP
            started = time.perf_counter_ns()
            step.run()
            call = step

    def _prepare(self, first: Binding) -> Binding:
        """A call of `decode_step` that begins where `first` ended, and then feeds itself."""
        step: Binding = self._step.bind()
        for layer in range(self._layers):
            for part in ("key", "value"):
                step.set_input(f"cross.{layer}.{part}", first.output(f"cross.{layer}.{part}"))
                step.set_input(f"past.{layer}.{part}", first.output(f"present.{layer}.{part}"))
                step.link(f"present.{layer}.{part}", f"past.{layer}.{part}")
        step.set_input("last", first.output("token")[:, -1:])
        step.link("token", "last")
        return step

    def _stop(self, token: int, tokens: list[int], limit: int) -> str:
        if token == self._end:
            return "end"
        if trimmed := repeated(tokens, self._repeats):
            del tokens[-trimmed:]
            return "repeat"
        return "length" if len(tokens) >= limit else ""


def repeated(tokens: list[int], repeats: int) -> int:
    """Tokens to drop at the end when the same 1 to 8 of them stand there `repeats` times; all but the first time go.

    Fewer than 12 tokens are no loop: people say "no no no no" and dictate 0000.
    """
    for size in range(1, 9):
        count = size * max(repeats, -(-_LOOP_TOKENS // size))
        if len(tokens) >= count and all(tokens[-i] == tokens[-i - size] for i in range(1, count - size + 1)):
            return count - size
    return 0
