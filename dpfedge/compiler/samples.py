# SPDX-License-Identifier: Apache-2.0
"""Inputs for golden runs: a family's graph in, small realistic values for each input out, the same on every machine.

Later graphs of a model get what earlier ones answered. It runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.records import dataclass
from dpfedge.tensors import TensorSpec

__all__ = ["Sample", "samples"]

Answers = Mapping[str, Mapping[str, Array]]
"""Graph → its outputs, for the graphs of the same model that ran before."""
Random = np.random.RandomState
"""NumPy promises that its numbers never change."""
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024, 16000)
"""Tried in this order for every dimension without a size, until the graph runs."""
_ELEMENTS = 1 << 20  # more input than this is not tried
_LINE_ROWS = 96  # of print, in pictures
_LAYERED = ("present.", "cross.")
_BATCH = ("batch", "n_batch", "b", "N")


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs of one call; inputs that are missing are zero and keep their static sizes."""

    feeds: Mapping[str, Array]
    in_place: tuple[tuple[str, str], ...] = ()
    """(beginning of output names, beginning of input names) written in place."""
    written: int = 0
    """Positions (axis 2) that outputs in place have afterwards."""
    layered: tuple[str, ...] = ()
    """Beginnings of names that stand for one output per layer: the last layer's tell what the others do."""
    alternatives: Callable[[], Iterator[Mapping[str, Array]]] = lambda: iter(())
    """Makes other inputs to try, when these cannot be run."""


@dataclass(frozen=True, slots=True)
class _Ask:
    """What a rule may use."""

    inputs: Mapping[str, TensorSpec]
    config: Mapping[str, Any]
    done: Answers
    random: Random


def samples(
    family: str, graph: str, inputs: tuple[TensorSpec, ...], config: Mapping[str, Any], done: Answers, seed: int
) -> tuple[Sample, ...]:
    """The calls to record for one graph; `seed` picks other values of the same kind."""
    ask = _Ask({spec.name: spec for spec in inputs}, config, done, Random(1000 + seed))
    if {"input_ids", "attention_mask"} <= ask.inputs.keys() and any(
        name.startswith("past_key_values.") for name in ask.inputs
    ):
        return _language_model(ask)
    rule = _RULES.get((family, graph.partition("@")[0]))  # a bucket of the graph
    return (_any(ask) if rule is None else Sample(rule(ask), layered=_LAYERED),)


def _noise(random: Random, scale: float, *dims: int) -> Array:
    return np.asarray(random.normal(0.0, scale, dims), np.float32)


def _vad(ask: _Ask) -> Mapping[str, Array]:
    return {"input": _noise(ask.random, 0.05, 1, 576), "state": _noise(ask.random, 0.1, 2, 1, 128)}


def _speech(ask: _Ask) -> Mapping[str, Array]:
    """Half a second that sounds a little like a vowel: harmonics of 120 Hz under noise."""
    seconds = np.arange(8000) / 16000
    tones = [np.sin(2 * np.pi * 120 * k * seconds + ask.random.uniform(0, 6)) / k for k in range(1, 12)]
    hiss = ask.random.normal(0.0, 0.01, (1, 8000))
    return {"samples": np.asarray(0.1 * np.sum(tones, axis=0) + hiss, np.float32)}


def _decode_first(ask: _Ask) -> Mapping[str, Array]:
    ids = [int(ask.config["start"]), *ask.random.randint(300, min(9000, int(ask.config["vocabulary"])), 2)]
    return {"tokens": np.array([ids], np.int64), "features": ask.done["encode"]["features"]}


def _decode_step(ask: _Ask) -> Mapping[str, Array]:
    first = ask.done["decode_first"]
    feeds = {name.replace("present.", "past."): value for name, value in first.items() if name != "token"}
    return {"last": np.ascontiguousarray(first["token"][:, -1:]), **feeds}


def _phonemes(ask: _Ask) -> Mapping[str, Array]:
    ids = np.zeros(
        (1, 17), np.int64
    )  # 1 begins, 2 ends, 0 stands between sounds, as the family's text front end has it
    ids[0, 0], ids[0, -1], ids[0, 2:-1:2] = 1, 2, ask.random.randint(10, 60, 7)
    scales = np.array([0.0, 1.0, 0.0], np.float32)  # no noise: two machines must say the same
    return {"input": ids, "input_lengths": np.array([17], np.int64), "scales": scales}


def _latent(ask: _Ask) -> Mapping[str, Array]:
    return {"latent": np.ascontiguousarray(ask.done["encode"]["latent"][:, :, :16])}


def _image(ask: _Ask) -> Mapping[str, Array]:
    """Dark strokes on a light ground, as print is, with a little noise; lines of it down to the end of a large one."""
    name, spec = next(iter(ask.inputs.items()))
    rows, columns = (int(dim) if type(dim) is int else 96 for dim in spec.dims[:2])
    image = 225 + ask.random.randint(0, 20, (rows, columns, 3))
    line = min(rows, _LINE_ROWS)
    for top in range(line // 4, rows, _LINE_ROWS):
        for left in range(8, columns - 8, 12):
            image[top : top + ask.random.randint(8, line // 2), left : left + 4] = 40
    return {name: image.astype(np.uint8)}


_RULES: Mapping[tuple[str, str], Callable[[_Ask], Mapping[str, Array]]] = {
    ("silero-vad", "vad"): _vad,
    ("moonshine", "encode"): _speech,
    ("moonshine", "decode_first"): _decode_first,
    ("moonshine", "decode_step"): _decode_step,
    ("piper", "encode"): _phonemes,
    ("piper", "decode"): _latent,
    ("ppocr-detect", "detect"): _image,
    ("ppocr-read", "read"): _image,
}


def _language_model(ask: _Ask) -> tuple[Sample, ...]:
    """A prompt into an empty cache, and one token: batches of rows and single rows have kernels of their own."""
    most = int(ask.config.get("vocabulary", 2))
    context = next(int(spec.dims[2]) for name, spec in ask.inputs.items() if name.startswith("past_key_values."))
    ids = ask.random.randint(0, min(most, 2000), 8)
    if ask.config.get("bos") is not None:
        ids[0] = int(ask.config["bos"])
    calls = []
    for count in (min(8, context), 1):
        feeds = {"input_ids": ids[None, -count:].astype(np.int64), "attention_mask": np.ones((1, count), np.int64)}
        calls.append(Sample(feeds, (("present.", "past_key_values."),), count, _LAYERED))
    return tuple(calls)


def _any(ask: _Ask) -> Sample:
    """Values by dtype for a graph nothing is known of; the sizes of dimensions without one are found by trying."""
    dynamic = any(type(dim) is str for spec in ask.inputs.values() for dim in spec.dims)
    choices = [(size, small) for size in (_SIZES if dynamic else (1,)) for small in (False, True)]
    choices = [choice for choice in choices if _elements(ask, choice[0]) <= _ELEMENTS] or choices[:1]
    return Sample(_filled(ask, *choices[0]), alternatives=lambda: (_filled(ask, *choice) for choice in choices[1:]))


def _filled(ask: _Ask, size: int, small: bool) -> Mapping[str, Array]:
    """`small`: integers are 0 or 1, for graphs that index with them."""
    return {name: _values(ask.random, spec, _sized(spec, size), small) for name, spec in ask.inputs.items()}


def _elements(ask: _Ask, size: int) -> int:
    return sum(math.prod(_sized(spec, size)) for spec in ask.inputs.values())


def _sized(spec: TensorSpec, size: int) -> list[int]:
    places = enumerate(spec.dims)
    return [int(dim) if type(dim) is int else 1 if _is_batch(str(dim), place) else size for place, dim in places]


def _is_batch(name: str, place: int) -> bool:
    return place == 0 and (name in _BATCH or "batch" in name.lower() or name.startswith("?"))


def _values(random: Random, spec: TensorSpec, dims: list[int], small: bool) -> Array:
    kind = spec.numpy.kind
    if kind == "f":
        return np.asarray(random.normal(0.0, 1.0, dims), spec.numpy)
    if kind == "b":
        return np.asarray(random.randint(0, 2, dims), spec.numpy)
    least, most = (0, 2) if small else (0, 100) if kind == "u" or spec.dtype != "i8" else (-100, 100)
    return np.asarray(random.randint(least, most, dims), spec.numpy)
