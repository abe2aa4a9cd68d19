# SPDX-License-Identifier: Apache-2.0
"""The encoder's test driver: a toy recogniser whose words depend on its samples, and the decoder's messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dpfedge.stage.api import Kind

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
FIRST = 300
"""The id of ` zero`."""
FIRST_CACHES = ("present.0.key", "present.0.value", "cross.0.key", "cross.0.value")
STEP_CACHES = (("past.0.key", "p"), ("past.0.value", "p"), ("cross.0.key", 1), ("cross.0.value", 1))


def vocabulary(count: int = FIRST + 40) -> bytes:
    """A tokenizer.bin: markers, raw bytes, then words; from FIRST + 20 on markers again."""
    entries = [b"<unk>", b"<s>", b"</s>", *(bytes([value]) for value in range(256))]
    entries += [b""] * (FIRST - len(entries))
    entries += [f"\u2581{word}".encode() for word in WORDS]
    entries += [f"<<ST_{index}>>".encode() for index in range(count - len(entries))]
    return b"".join(bytes([len(entry)]) + entry for entry in entries)


def _model(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _ints(name: str, *values: int, shape: list[int] | None = None) -> onnx.TensorProto:
    return helper.make_tensor(name, INT, [len(values)] if shape is None else shape, values)


def toy_recogniser(*, loop: bool = False) -> dict[str, onnx.ModelProto]:
    """Moonshine's ports with one layer. Says as many words as ten times the loudest sample: one, two, three, …

    The count of words said so far is the length of the key cache; `loop`: it says `one` for ever.
    """
    node, value = helper.make_node, helper.make_tensor_value_info
    encode = _model(
        "encode",
        [
            node("ReduceMax", ["samples", "axis"], ["peak"], keepdims=1),
            node("Unsqueeze", ["peak", "axis"], ["features"]),
        ],
        [value("samples", FLOAT, [1, "n"])],
        [value("features", FLOAT, [1, 1, 1])],
        [_ints("axis", 1)],
    )
    word = [
        node("Mul", ["peak", "ten"], ["words"]),
        node("Cast", ["words"], ["limit"], to=INT),
        node("Less", ["said", "limit"], ["more"]),
        node("Add", ["said", "first"], ["next"]),
        node("Where", ["more", "one" if loop else "next", "end"], ["word"]),
        node("Reshape", ["word", "shape"], ["token"]),
    ]
    numbers = [
        helper.make_tensor("ten", FLOAT, [1], [10.001 if not loop else 1e6]),
        _ints("first", FIRST + 1),
        _ints("one", FIRST + 1),
        _ints("end", 2),
        _ints("shape", 1, 1),
        _ints("flat", 1),
    ]
    first = _model(
        "decode_first",
        [
            node("Reshape", ["features", "flat"], ["peak"]),
            *word,
            node("Reshape", ["features", "cache"], ["cross.0.key"]),
            node("Identity", ["cross.0.key"], ["cross.0.value"]),
            node("Identity", ["cross.0.key"], ["present.0.key"]),
            node("Identity", ["cross.0.key"], ["present.0.value"]),
        ],
        [value("tokens", INT, [1, "t"]), value("features", FLOAT, [1, 1, 1])],
        [value("token", INT, [1, 1]), *(_cache(name, 1) for name in FIRST_CACHES)],
        [*numbers, _ints("said", 0), _ints("cache", 1, 1, 1, 1)],
    )  # fmt: skip
    step = _model(
        "decode_step",
        [
            node("Reshape", ["cross.0.key", "flat"], ["peak"]),
            node("Shape", ["past.0.key"], ["said"], start=2, end=3),
            *word,
            node("Concat", ["past.0.key", "cross.0.key"], ["present.0.key"], axis=2),
            node("Concat", ["past.0.value", "cross.0.value"], ["present.0.value"], axis=2),
        ],
        [value("last", INT, [1, 1]), *(_cache(name, size) for name, size in STEP_CACHES)],
        [value("token", INT, [1, 1]), _cache("present.0.key", "q"), _cache("present.0.value", "q")],
        numbers,
    )  # fmt: skip
    return {"encode": encode, "decode_first": first, "decode_step": step}


def _cache(name: str, length: int | str) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, [1, 1, length, 1])


CONFIG = {"start": 1, "eos": 2, "special_from": FIRST + 20}


@pytest.fixture(scope="session")
def toy(driver: Any) -> Any:
    """`toy(loop=…)`: a bound toy model."""
    return lambda loop=False: driver.Model(
        "toy", toy_recogniser(loop=loop), {"tokenizer.bin": vocabulary()}, dict(CONFIG)
    )


@pytest.fixture(scope="session")
def vocabulary_bytes() -> bytes:
    """The toy's tokenizer.bin."""
    return vocabulary()


def speech(words: int, samples: int = 32000) -> Any:
    """Samples in which the toy hears so many words."""
    return np.full(samples, words / 10, np.float32)


@pytest.fixture(scope="session")
def said() -> Any:
    """`said(3)`: two seconds in which the toy hears three words."""
    return speech


@pytest.fixture
def heard(driver: Any) -> Any:
    """`heard(io, …)`: puts an AUDIO message, growing or final, into a driver's inbox and gives it."""

    def put(io: Any, samples: Any, *, turn: int = 1024, partial: bool = False, captured_ns: int = 7) -> Any:
        message = io.put(Kind.AUDIO, samples, turn=turn, last=not partial)
        message.partial, message.captured_ns = partial, captured_ns
        return message

    return put


@pytest.fixture
def marks() -> Any:
    """`marks(samples)`: the decoder's DRAFT map."""

    def make(samples: int, speech_ms: int = 1500) -> dict[str, int]:
        return {
            "samples": samples,
            "at_ns": 5,
            "start_ms": 100,
            "end_ms": 1600,
            "speech_ms": speech_ms,
            "captured_ns": 7,
        }

    return make
