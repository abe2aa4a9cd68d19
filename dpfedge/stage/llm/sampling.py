# SPDX-License-Identifier: Apache-2.0
"""Logits in, the next token out; stop strings are `stops.py`'s work.

Penalties as in llama.cpp (`llama_sampler_init_penalties`): over the last `repeat_window` tokens of prompt and answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from dpfedge.errors import InputError, StageError
from dpfedge.records import dataclass

__all__ = ["Sampler", "Sampling"]

Logits = np.ndarray[Any, np.dtype[np.float32]]

_STOPS_MAX = 16  # OpenAI's interface allows 4
_NUCLEUS = 64  # tokens looked at first; sorting all 50 000 would take 4 ms


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen and when an answer ends."""

    max_tokens: int | None = None
    """None: until the context is full."""
    temperature: float = 0.0
    """0 takes the best token."""
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repeat_penalty: float = 1.0
    repeat_window: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0

    def with_request(self, given: object) -> Sampling:
        """These defaults with what one request gives (None: the default); InputError names a value out of range."""
        if given is None:
            return self
        if not isinstance(given, Mapping):
            raise InputError("must be an object", stage="llm", where="sampling", found=type(given).__name__)
        return replace(self, **{name: _checked(name, value) for name, value in given.items() if value is not None})


_RANGES: Mapping[str, tuple[type | tuple[type, ...], float, float]] = {
    "max_tokens": (int, 1, math.inf),
    "temperature": ((int, float), 0, 2),
    "top_p": ((int, float), 0, 1),
    "seed": (int, -(1 << 63), 1 << 63),
    "repeat_penalty": ((int, float), 0.1, 10),
    "repeat_window": (int, 0, 1 << 20),
    "presence_penalty": ((int, float), -2, 2),
    "frequency_penalty": ((int, float), -2, 2),
}


def _checked(name: str, value: object) -> Any:
    if name == "stop":
        return _stop(value)
    if name not in _RANGES:
        known = ", ".join(asdict(Sampling()))
        raise InputError("unknown setting", stage="llm", where=f"sampling.{name}", found=name, allowed=known)
    kind, low, high = _RANGES[name]
    if not isinstance(value, kind) or isinstance(value, bool) or not low <= value <= high:  # type: ignore[operator]
        allowed = f"{low} to {high}" if high < 1 << 20 else f"an integer of at least {low}"
        raise InputError("out of range", stage="llm", where=f"sampling.{name}", found=repr(value), allowed=allowed)
    return value


def _stop(value: object) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, Sequence) else (value,)
    if len(texts) > _STOPS_MAX or not all(isinstance(text, str) and text for text in texts):
        allowed = f"at most {_STOPS_MAX} non-empty strings"
        raise InputError("must be text", stage="llm", where="sampling.stop", found=repr(value)[:80], allowed=allowed)
    return texts


class Sampler:
    """Chooses one answer's tokens; `prompt` counts for the repeat penalty. Same seed, same logits: same tokens."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._sampling = sampling
        seed = None if sampling.seed is None else sampling.seed % (1 << 64)
        self._draws: Callable[[], float] | None = None
        if sampling.temperature > 0:  # numpy.random is imported for them
            self._draws = np.random.Generator(np.random.PCG64(seed)).random
        self._window = np.zeros(sampling.repeat_window, np.int64)
        recent = list(prompt)[len(prompt) - min(len(prompt), sampling.repeat_window) :]
        self._window[: len(recent)] = recent
        self._seen = len(recent)
        self._penal = sampling.repeat_penalty != 1.0 and sampling.repeat_window > 0
        self._counts: dict[int, int] = {}
        self._counted = sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0

    def next(self, logits: Logits) -> int:
        """The next token from f32[vocabulary], which is changed in place; StageError if the logits are no numbers."""
        if self._penal:
            self._penalise(logits)
        if self._counted and self._counts:
            self._discourage(logits)
        token = int(logits.argmax())  # the first NaN or the largest, so one look at it finds either
        if not math.isfinite(logits[token]):
            raise StageError("the model gave logits that are no numbers", stage="llm", found=str(logits[token]))
        if self._draws is not None:
            token = self._draw(logits, float(logits[token]), self._draws())
        self._accept(token)
        return token

    def _penalise(self, logits: Logits) -> None:
        recent = self._window[: min(self._seen, self._window.size)]
        values = logits[recent]
        penalty = np.float32(self._sampling.repeat_penalty)
        logits[recent] = np.where(values > 0, values / penalty, values * penalty)

    def _discourage(self, logits: Logits) -> None:
        tokens = np.fromiter(self._counts.keys(), np.int64, len(self._counts))
        counts = np.fromiter(self._counts.values(), np.float32, len(self._counts))
        logits[tokens] -= self._sampling.presence_penalty + self._sampling.frequency_penalty * counts

    def _draw(self, logits: Logits, best: float, share: float) -> int:
        weights = np.exp((logits - np.float32(best)) / np.float32(self._sampling.temperature))
        tokens = self._nucleus(weights) if self._sampling.top_p < 1.0 else None
        mass = np.cumsum(weights if tokens is None else weights[tokens], dtype=np.float64)
        place = min(int(np.searchsorted(mass, share * mass[-1], side="right")), mass.size - 1)
        return place if tokens is None else int(tokens[place])

    def _nucleus(self, weights: Logits) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The fewest tokens, best first, that hold `top_p` of the mass (Holtzman et al., arXiv 1904.09751)."""
        wanted = self._sampling.top_p * weights.sum(dtype=np.float64)
        size = min(_NUCLEUS, weights.size)
        while True:
            tokens = np.argpartition(weights, weights.size - size)[weights.size - size :]
            tokens = tokens[np.argsort(-weights[tokens], kind="stable")]
            mass = np.cumsum(weights[tokens], dtype=np.float64)
            if mass[-1] >= wanted or size == weights.size:
                return tokens[: int(np.searchsorted(mass, wanted)) + 1]
            size = min(8 * size, weights.size)

    def _accept(self, token: int) -> None:
        if self._window.size:
            self._window[self._seen % self._window.size] = token
        self._seen += 1
        if self._counted:
            self._counts[token] = self._counts.get(token, 0) + 1
