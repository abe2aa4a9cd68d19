# SPDX-License-Identifier: Apache-2.0
"""The decoder's test driver: slots that remember what was shown, and a toy voice activity model that hears loudness."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dpfedge.backend.api import Budget
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.decoder import DecoderStage

RATE = 16000


@pytest.fixture(scope="session")
def audio() -> ModuleType:
    """tests/audio_cases.py."""
    path = Path(__file__).parents[3] / "audio_cases.py"
    spec = importlib.util.spec_from_file_location("audio_cases", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["audio_cases"] = module
    spec.loader.exec_module(module)
    return module


def toy_vad(*, counts: bool = False) -> onnx.ModelProto:
    """Silero's ports. Probability: four times the mean loudness; `counts`: a hundredth of the frames seen before."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Abs", ["input"], ["loud"]),
        helper.make_node("ReduceMean", ["loud", "axes"], ["mean"], keepdims=1),
        helper.make_node("ReduceMean", ["state"], ["seen"], keepdims=0),
        helper.make_node("Reshape", ["seen", "shape"], ["frames"]),
        helper.make_node("Mul", ["frames" if counts else "mean", "scale"], ["raw"]),
        helper.make_node("Clip", ["raw", "zero", "one"], ["output"]),
        helper.make_node("Add", ["state", "one"], ["stateN"]),
    ]
    constants = [
        helper.make_tensor("axes", TensorProto.INT64, [1], [1]),
        helper.make_tensor("shape", TensorProto.INT64, [2], [1, 1]),
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.01 if counts else 4.0]),
        helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
        helper.make_tensor("one", TensorProto.FLOAT, [], [1.0]),
    ]
    inputs = [
        value("input", TensorProto.FLOAT, [1, 576]),
        value("state", TensorProto.FLOAT, [2, 1, 128]),
        value("sr", TensorProto.INT64, []),
    ]
    outputs = [value("output", TensorProto.FLOAT, [1, 1]), value("stateN", TensorProto.FLOAT, [2, 1, 128])]
    graph = helper.make_graph(nodes, "vad", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


class RecordingSlot:
    """A loaned cell; what it showed is kept with the flags."""

    def __init__(self, io: Any, array: Any) -> None:
        self._io, self.array = io, array
        self.shown: list[tuple[int, Any]] = []

    def publish(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0) -> None:
        self.shown.append((used, self.array[:used].copy()))
        self._io.published.append((turn, used, captured_ns))

    def send(self, used: int, *, kind: Kind, turn: int, captured_ns: int = 0, last: bool = False) -> None:
        for earlier, seen in self.shown:
            assert np.array_equal(self.array[:earlier], seen), "samples that were shown have changed"
        self._io.utterances.append((turn, self.array[:used].copy(), captured_ns, last))
        self.array = None

    def abandon(self) -> None:
        self._io.abandoned += 1
        self.array = None


@pytest.fixture
def listen(driver: Any) -> Any:
    """`listen(pieces, …)` runs one request of a decoder with the toy model and gives its driver."""

    class ListenIO(driver.IO):  # type: ignore[misc]
        def __init__(self, mode: Mode, options: dict[str, Any]) -> None:
            super().__init__(mode, options, ("sink", "speech"))
            self.published: list[Any] = []
            self.utterances: list[Any] = []
            self.abandoned = 0

        def loan(self, port: str, shape: tuple[int, ...], dtype: str) -> Generator[Wait, None, Any]:
            yield Wait.SPACE
            return RecordingSlot(self, np.full(shape, np.nan, np.float32))

        def feed(self, data: bytes, *, captured_ns: int = 1, last: bool = False) -> None:
            message = self.put(Kind.AUDIO, np.frombuffer(data, np.uint8), turn=0, last=last)
            message.captured_ns = captured_ns

    def run(
        pieces: list[bytes],
        *,
        mode: Mode = Mode.CONVERSE,
        form: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        vad: dict[str, Any] | None = None,
        piece_ms: float = 0.0,
        commands: dict[int, Kind] | None = None,
        end: bool = True,
        turn: int = 0,
    ) -> Any:
        stage = DecoderStage(driver.Model("toy", {"vad": toy_vad()}, {}), config or {}, Budget())
        io = ListenIO(mode, {"format": form, "vad": vad, "turn": turn})
        steps = stage.request(io)
        for index, piece in enumerate(pieces):
            io.feed(piece, captured_ns=1 + int(index * piece_ms * 1e6))
            driver.drive(steps, io)
            if commands and index in commands:
                io.put(commands[index], {}, turn=0)
                driver.drive(steps, io)
        if end:
            io.feed(b"", last=True)
            driver.drive(steps, io)
        steps.close()
        return io

    return run


@pytest.fixture
def toys() -> Any:
    """`toys(counts=…)`: the toy model's graph."""
    return toy_vad


def _noise(seconds: float, amplitude: float, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-amplitude, amplitude, round(seconds * RATE)).astype("<f4")


@pytest.fixture
def talk() -> Any:
    """`talk(0.5, -0.3, …)`: seconds of loud noise (positive) and of silence (negative), f32 samples at 16 kHz."""

    def make(*seconds: float, amplitude: float = 0.8) -> Any:
        parts = [
            _noise(part, amplitude, index) if part > 0 else np.zeros(round(-part * RATE), "<f4")
            for index, part in enumerate(seconds)
        ]
        return np.concatenate(parts)

    return make


@pytest.fixture
def f32() -> dict[str, Any]:
    """The format of `talk`."""
    return {"encoding": "pcm_f32le", "rate": RATE, "channels": 1}
