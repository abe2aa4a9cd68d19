# SPDX-License-Identifier: Apache-2.0
"""Graphs onto the chip's own GPU and DLAs, and never onto another device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import onnx
import pytest
import standin
from dpfedge_cuda.driver import Driver
from dpfedge_cuda.loading import check_kernels
from dpfedge_jetson import loading as module
from dpfedge_jetson.devices import find_devices
from dpfedge_jetson.loading import ENGINE, JetsonLoader
from dpfedge_jetson.lower import lower
from onnx import helper

from dpfedge.backend.api import Budget, Device, GraphView, LowerRequest, SealedView
from dpfedge.backend.fatbin import Kernels
from dpfedge.errors import BackendError, Unavailable, Unsupported

Network = Callable[..., onnx.ModelProto]
MACHINES = Path(__file__).parents[3] / "fixtures/machines"
ORIN = {"ordinal": 0, "name": "Orin", "pci": "0000:00:00.0", "capability": 87, "integrated": True, "maps": True}
CARD = {"ordinal": 1, "name": "NVIDIA A10", "pci": "0005:01:00.0", "capability": 86, "integrated": False, "maps": True}


class FakeDriver:
    """CUDA that shows these devices and makes every call."""

    start_s = 1.0

    def __init__(self, seen: Sequence[dict[str, Any]]) -> None:
        self.seen, self.calls = seen, list[str]()

    def devices(self) -> Sequence[dict[str, Any]]:
        """What it shows."""
        return self.seen

    def check_process(self) -> None:
        """It was not forked."""

    def do(self, what: str, act: object, within_s: float | None = None) -> int:
        """Notes the call."""
        self.calls.append(what)
        return 7


def loader(*seen: dict[str, Any]) -> JetsonLoader:
    """With a fake CUDA."""
    return JetsonLoader(cast(Driver, FakeDriver(seen)))


def device(kind: str = "gpu.nvidia", machine: str = "orin-agx") -> Device:
    """The first of a kind."""
    return next(one for one in find_devices(MACHINES / machine) if one.kind == kind)


@pytest.fixture
def view(network: Network) -> GraphView:
    """A graph for a DLA."""
    model = network(helper.make_node("Relu", ["x"], ["y"]))
    del model.graph.initializer[:]
    low = lower(LowerRequest("g", model.SerializeToString(), "nvdla2", frozenset()))
    return GraphView("g", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": "nvdla2"})


def test_find__takes_the_integrated_gpu(view: GraphView) -> None:
    """Whatever number CUDA gives it, and whatever stands in a slot."""
    assert loader(CARD, ORIN)._find(device())["ordinal"] == 0
    assert loader(CARD, ORIN)._find(device("dla.nvidia"))["name"] == "Orin"


@pytest.mark.parametrize(
    ("seen", "machine", "found"),
    [
        ([CARD], "orin-agx", "found NVIDIA A10 (sm_86); allowed sm_87"),
        ([], "orin-agx", "found no device; allowed sm_87"),
        ([ORIN], "thor", "found Orin (sm_87); allowed sm_110"),
    ],
)
def test_find__never_takes_another(seen: list[dict[str, Any]], machine: str, found: str) -> None:
    """A card in a slot is not the chip's GPU."""
    with pytest.raises(Unavailable) as caught:
        loader(*seen)._find(device(machine=machine))
    assert "backend jetson: jetson:0: CUDA does not see the chip's own GPU" in str(caught.value)
    assert found in str(caught.value)


def test_dla__builds_seals_and_runs(
    fake_tensorrt: ModuleType, view: GraphView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sealed engine is opened on its core without building; without one it is built now."""
    first, dla = loader(ORIN), device("dla.nvidia")
    sealed = {name: b"".join(np.asarray(part).tobytes() for part in parts)
              for name, parts in (first.seal(view, dla, Budget()) or {}).items()}  # fmt: skip
    assert list(sealed) == [ENGINE]
    built = first.load(view, dla, Budget())
    assert built.name == "g"

    def no_build(*arguments: object) -> bytes:
        raise AssertionError("built anew")

    monkeypatch.setattr("dpfedge_jetson.engine.build", no_build)
    with_seal = GraphView(view.name, view.code, view.inputs, view.outputs, {}, view.options,
                          {ENGINE: SealedView(memoryview(sealed[ENGINE]), -1, 0)})  # fmt: skip
    assert loader(ORIN).load(with_seal, dla, Budget()).name == "g"
    broken = GraphView(view.name, view.code, view.inputs, view.outputs, {}, view.options,
                       {ENGINE: SealedView(memoryview(b"\0" * 64), -1, 0)})  # fmt: skip
    with pytest.raises(BackendError, match="the engine is not one of this DLA"):
        loader(ORIN).load(broken, dla, Budget())


def test_dla__where_tensorrt_would_take_another_gpu(fake_tensorrt: ModuleType, view: GraphView) -> None:
    """TensorRT runs on CUDA's first device; with a card before the chip's GPU that would be the card."""
    second = {**ORIN, "ordinal": 1}

    for act in (loader(CARD, second).load, loader(CARD, second).seal):
        with pytest.raises(Unavailable, match=r"TensorRT would take another GPU.*CUDA_VISIBLE_DEVICES=1"):
            act(view, device("dla.nvidia"), Budget())


def test_providers__say_how_a_jetsons_are_installed() -> None:
    """The CUDA provider of a JetPack's build."""

    class _Context:
        ordinal = 0

        def stream(self, *, high: bool) -> int:
            return 7

    found = loader(ORIN)._providers(_Context(), True, GraphView("g", memoryview(b""), (), (), {}))
    assert (found.backend, found.providers[-1].name) == ("jetson", "CUDAExecutionProvider")
    assert "PyPI's aarch64 build is for servers" in found.remedy


def test_load__of_a_graph_for_another_device(view: GraphView) -> None:
    """A DLA's graph is none for the GPU."""
    with pytest.raises(Unsupported, match="lowered for another device; found sm_87; allowed nvdla2"):
        loader(ORIN).load(view, device(), Budget())
    with pytest.raises(Unsupported, match="lowered for another device"):
        loader(ORIN).seal(view, device(), Budget())


@pytest.mark.parametrize("arch", ["sm_87", "sm_110"])
def test_kernels__of_the_stock_aarch64_wheel(arch: str) -> None:
    """PyPI's onnxruntime-gpu 1.31.1 for aarch64 has code for 8.9, 9.0, 12.0 and 12.1 and no PTX: nothing for these."""
    stock = Kernels(frozenset({89, 90, 120, 121}), frozenset())

    with pytest.raises(Unsupported) as caught, module.named():
        check_kernels(arch, stock)
    said = str(caught.value)
    assert said.startswith("backend jetson: this build of onnxruntime has no kernels for this GPU; found " + arch)
    assert "JetPack's index" in said


def test_errors__of_what_is_shared_name_this_backend() -> None:
    """With what else they say."""
    with pytest.raises(Unavailable, match=r"^backend jetson: cuda:0: gone; found x$"), module.named():
        raise Unavailable("gone", where="backend cuda: cuda:0", found="x")
    with pytest.raises(Unavailable, match=r"; `dpfedge doctor --backend jetson` tells why$"), module.named():
        raise Unavailable("gone", where="backend cuda", remedy="`dpfedge doctor --backend cuda` tells why")
    with pytest.raises(BackendError, match=r"^graph g: no$"), module.named():
        raise BackendError("no", where="graph g")


LOAD = """
from pathlib import Path
from dpfedge.backend.api import Budget, GraphView, LowerRequest
from dpfedge.testing.models import affine
from dpfedge_jetson import JetsonBackend
backend = JetsonBackend()
device = backend.devices(Path(MACHINE))[0]
low = backend.lower(LowerRequest("g", affine(4).SerializeToString(), device.arch, device.features))
backend.load(GraphView("g", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": device.arch}), device, Budget())
"""


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "Unavailable: backend jetson: libcuda.so.1 cannot be loaded"),
        ({"CUDA_CAPABILITY": "87", "CUDA_INTEGRATED": "0"}, "CUDA does not see the chip's own GPU; found NVIDIA"),
        ({"CUDA_CAPABILITY": "110", "CUDA_INTEGRATED": "1"}, "(sm_110); allowed sm_87"),
        ({"CUDA_CAPABILITY": "87", "CUDA_INTEGRATED": "1"}, "this build of onnxruntime has no CUDAExecutionProvider"),
        ({"CUDA_INTEGRATED": "1", "STANDIN": "cuInit=35"}, "Unavailable: backend jetson: the CUDA driver refuses"),
        ({"CUDA_INTEGRATED": "1", "STANDIN": "cuInit=crash"}, "the CUDA driver ended the process that asked it"),
    ],
)
def test_load__up_to_the_vendors_library(environ: dict[str, str], said: str) -> None:
    """Real code over a stand-in for libcuda: each thing that is missing or lies is named, and the CPU never runs it."""
    plugins = Path(__file__).parents[4] / "plugins"
    path = [str(plugins / f"dpfedge-{name}") for name in ("jetson", "cuda", "cpu")]
    folder = str(standin.build("cuda.c", "libcuda.so.1")) if environ else ""
    whole = {**os.environ, **environ, "PYTHONPATH": os.pathsep.join(path), "LD_LIBRARY_PATH": folder}
    code = LOAD.replace("MACHINE", repr(str(MACHINES / "orin-agx")))
    done = subprocess.run([sys.executable, "-c", code], env=whole, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1, done.stderr
    assert said in done.stderr.strip().splitlines()[-1]
