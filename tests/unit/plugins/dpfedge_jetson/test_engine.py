# SPDX-License-Identifier: Apache-2.0
"""Engines for DLAs with a fake of TensorRT: never the GPU in silence, and every failure in its own words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from dpfedge_jetson.engine import build, open_engine, tensorrt
from onnx import helper

from dpfedge.backend import loader
from dpfedge.backend.api import GraphView
from dpfedge.backend.onnx_graph import graph_ports, place_weights, take_weights
from dpfedge.errors import BackendError, Unavailable, Unsupported

Network = Callable[..., onnx.ModelProto]


def graph(model: onnx.ModelProto) -> GraphView:
    """As a package holds it: weights apart."""
    inputs, outputs = graph_ports(model)
    weights = take_weights(model)
    data = b"".join(np.ascontiguousarray(one).tobytes() for one in weights.values())
    offsets = np.cumsum([0, *(one.nbytes for one in weights.values())]).tolist()
    places = {name: ("w", at, one.nbytes) for (name, one), at in zip(weights.items(), offsets, strict=False)}
    code = place_weights(model.SerializeToString(), places)
    return GraphView("g", memoryview(code), inputs, outputs, {"w": memoryview(data)})


@pytest.fixture
def view(network: Network) -> GraphView:
    """A convolution and a Relu."""
    return graph(network(helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1] * 4),
                         helper.make_node("Relu", ["c"], ["y"], name="relu")))  # fmt: skip


def test_build__is_for_one_dla_and_nothing_else(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """The flag that lets the GPU help is cleared, whatever it was; weights are inside."""
    data = build(view, 1)
    config = fake_tensorrt.LAST["config"]

    assert data.startswith(fake_tensorrt.MARK)
    assert (config.default_device_type, config.DLA_core) == (fake_tensorrt.DeviceType.DLA, 1)
    assert config.flags == {fake_tensorrt.BuilderFlag.FP16}


def test_build__names_what_the_builder_refuses(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """In TensorRT's words."""
    fake_tensorrt.REFUSES = "Relu"

    with pytest.raises(Unsupported, match=r"graph g: the DLA does not run this graph whole; found relu: Layer cannot"):
        build(view, 0)


def test_build__of_what_the_parser_refuses(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """With its errors."""
    fake_tensorrt.OnnxParser.parse = lambda self, data: self.errors.append("no importer for y") is not None

    with pytest.raises(Unsupported, match="TensorRT does not read the graph; found no importer for y"):
        build(view, 0)


@pytest.mark.parametrize(
    ("cores", "core", "said"),
    [
        (0, 0, r"this TensorRT does not know of a DLA; found TensorRT 10\.3\.0; allowed TensorRT up to 10\.7"),
        (1, 1, "DLA 1: there is no such DLA; found 1 of them"),
    ],
)
def test_cores__that_are_not_there(
    fake_tensorrt: ModuleType, view: GraphView, cores: int, core: int, said: str
) -> None:
    """Not core 0 instead, and not the GPU."""
    data = build(view, 0)
    fake_tensorrt.CORES = cores

    with pytest.raises(Unavailable, match=said):
        build(view, core)
    with pytest.raises(Unavailable, match=said):
        open_engine(memoryview(data), core, "graph g")


def test_open__runs_on_the_core_it_was_asked_for(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """The engine does not keep its core; who opens it says which."""
    opened = open_engine(memoryview(build(view, 1)), 1, "graph g")

    assert fake_tensorrt.LAST["core"] == 1
    assert opened.ports() == [
        ("x", True, (1, 16, 8, 8), np.dtype(np.float32)), ("y", False, (1, 16, 8, 8), np.dtype(np.float32)),
    ]  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"engine of another TensorRT", bytes(64)])
def test_open__of_bytes_that_are_none(fake_tensorrt: ModuleType, data: bytes) -> None:
    """With TensorRT's word for it."""
    with pytest.raises(BackendError, match=r"graph g: the engine is not one of this DLA and TensorRT; found Serializ"):
        open_engine(memoryview(data), 0, "graph g")


def test_context__that_cannot_be_made(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """16 loadables a core at most."""
    opened = open_engine(memoryview(build(view, 0)), 0, "graph g")
    opened.engine.create_execution_context = lambda: None

    with pytest.raises(BackendError, match="graph g: the engine cannot be run; found no word of why"):
        opened.context()


def test_tensorrt__that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, with JetPack's package."""
    monkeypatch.setitem(sys.modules, "tensorrt", None)

    with pytest.raises(Unavailable, match=r"TensorRT cannot be loaded.*install python3-libnvinfer"):
        tensorrt()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import time; time.sleep(60)", "loading it takes more than 1 s"),
        ("import os; os.abort()", "loading it ends the process by signal 6"),
        ("import os; os._exit(0)", r"loading it ends the process \(0\)"),
        ("import libnvinfer_of_nobody", "No module named 'libnvinfer_of_nobody'"),
    ],
)
def test_tensorrt__that_cannot_be_lived_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, view: GraphView, body: str, words: str
) -> None:
    """It hangs, crashes or ends a child, which is all that it costs; a stand-in made of a line of Python."""
    (tmp_path / "tensorrt.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.setattr(loader, "_TIMEOUT_S", 1.0 if "sleep" in body else 30.0)

    with pytest.raises(Unavailable, match=f"backend jetson: TensorRT cannot be loaded; found .*{words}; install"):
        build(view, 0)


def test_build__of_damaged_code(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """No crash."""
    bad = GraphView("g", memoryview(b"\x07nothing"), view.inputs, view.outputs, {})

    with pytest.raises(BackendError, match="graph g: this is no lowered graph"):
        build(bad, 0)
