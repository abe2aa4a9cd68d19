# SPDX-License-Identifier: Apache-2.0
"""Packages whose models go to a CPU, a GPU and a DLA: lowered by the real plugins, bound on recorded machines.

Nothing of it ran on such a machine: what is proved ends where a model would be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_jetson.backend import JetsonBackend
from dpfedge_rocm.backend import RocmBackend
from onnx import TensorProto, helper, numpy_helper

from dpfedge.backend.registry import Registry
from dpfedge.binding import Bound, bind_here
from dpfedge.binding.explain import explain_bound
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import BindError, Unsupported
from dpfedge.hardware.board import VARIABLE, board_files
from dpfedge.package import open_package

MACHINES = Path(__file__).parents[1] / "fixtures" / "machines"
RECIPE = """\
name: placed
version: "1"
models:
  vad: {family: onnx, source: "folder:vad", licence: MIT}
  llm: {family: onnx, source: "folder:llm", licence: MIT}
  detect: {family: onnx, source: "folder:detect", licence: MIT}
  read: {family: onnx, source: "folder:llm", licence: MIT, buckets: {n: [16, 64]}}
pipeline:
  stages:
    decoder: {model: vad}
    llm: {model: llm}
    text-detect: {model: detect}
    text-read: {model: read}
"""
DETECT = "\n  text-detect: {threads: 1, device: [dla, gpu]}\n"
Compile = Callable[..., Path]


def product(rows: int | str) -> onnx.ModelProto:
    """A product with a weight, of any number of rows or of one."""
    return _model(helper.make_node("MatMul", ["x", "w"], ["y"]), [rows, 8], [rows, 8], np.eye(8, dtype=np.float32))


def picture(operator: str) -> onnx.ModelProto:
    """A convolution, which a DLA has, or another operator over a picture."""
    return _model(helper.make_node(operator, ["x", "w"], ["y"]), [1, 3, 8, 8], [1, 4, 8, 8],
                  np.ones((4, 3, 1, 1), np.float32))  # fmt: skip


def _model(node: onnx.NodeProto, into: list[int | str], out: list[int | str], weight: np.ndarray) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", into), ("y", out))]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def registry() -> Registry:
    """The real plugins, none of which has a device here but the CPU's."""
    one = Registry()
    for backend in (CpuBackend(), JetsonBackend(), RocmBackend()):
        one.add(backend)
    return one


@pytest.fixture
def compiled(tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """A function that compiles the recipe for a board, where the detector is placed on the DLA."""

    def make(board: str, detect: onnx.ModelProto) -> Path:
        for name, model in (("vad", product(1)), ("llm", product("n")), ("detect", detect)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "net.onnx").write_bytes(model.SerializeToString())
        text = board_files()[board.partition(":")[0]].read_text()
        if "id: dla" in text:
            text = text.replace("\nplacement:\n", "\nplacement:" + DETECT)
        (tmp_path / f"{board.partition(':')[0]}.yaml").write_text(text)
        monkeypatch.setenv(VARIABLE, str(tmp_path))
        (tmp_path / "recipe.yml").write_text(RECIPE)
        compile_package(
            load_recipe(tmp_path / "recipe.yml"), tmp_path / "p.dpfbin", boards=[board, "host"], registry=registry
        )
        return tmp_path / "p.dpfbin"

    return make


def bound(package: Path, machine: str, registry: Registry, **options: list[str]) -> Bound:
    """The package on a recorded machine."""
    return bind_here(open_package(package), sysroot=MACHINES / machine, registry=registry, **options)  # type: ignore[arg-type]


def devices(bound: Bound) -> dict[str, str]:
    """Model → id of its device."""
    return {model: device.id for model, device in bound.devices.items()}


def test_orin__cpu_gpu_and_dla(compiled: Compile, registry: Registry) -> None:
    """The vad is no work for a GPU, the llm is, and the detector is the DLA's."""
    one = bound(compiled("orin", picture("Conv")), "orin-agx", registry)

    assert devices(one) == {"vad": "cpu:0", "llm": "jetson:0", "read": "jetson:0", "detect": "jetson:dla0"}
    assert one.degraded is None
    lines = list(explain_bound(one, explain=True))
    assert "decided  vad: device=cpu: board orin: the board file places decoder there" in lines
    assert "decided  detect: device=dla: board orin: the board file places text-detect there" in lines


def test_orin__what_the_dla_refuses_goes_to_the_next_device(compiled: Compile, registry: Registry) -> None:
    """The GPU takes it, by a decision with the DLA's words."""
    one = bound(compiled("orin", product("m")), "orin-agx", registry)

    assert devices(one)["detect"] == "jetson:0"
    [(_, rule)] = [row for row in one.places["detect"].target.decisions if row[0] == "detect: device=gpu, not dla"]
    assert rule.startswith("board orin: jetson refuses it: ")
    assert "fixed shapes" in rule


def test_orin__without_its_plugin(compiled: Compile) -> None:
    """What was placed on GPU and DLA needs leave to run on the CPU; the vad does not."""
    package, plain = compiled("orin", picture("Conv")), Registry()
    plain.add(CpuBackend())

    with pytest.raises(BindError, match="no target runs llm, read, detect on board orin"):
        bound(package, "orin-agx", plain)
    one = bound(package, "orin-agx", plain, allow_fallback=["cpu"])
    assert {model: place.degraded is not None for model, place in one.places.items()} == {
        "vad": False, "llm": True, "detect": True, "read": True,
    }  # fmt: skip


@pytest.mark.parametrize("machine", ["mi300x", "mi300x-cpx"])
def test_mi300x__buckets_on_the_gpu_and_open_sizes_on_the_cpu(
    compiled: Compile, registry: Registry, machine: str
) -> None:
    """MIGraphX needs fixed shapes: a model that has buckets, or one size only, is the GPU's, the other the CPU's."""
    one = bound(compiled("mi300x", picture("Conv")), machine, registry)

    assert devices(one) == {"vad": "cpu:0", "llm": "cpu:0", "read": "rocm:0", "detect": "rocm:0"}
    assert sorted(one.model("read").graphs) == ["main@n-16", "main@n-64"]
    assert one.model("read").bucket("main", n=20) == "main@n-64"
    rules = dict(one.places["llm"].target.decisions)
    assert rules["llm: device=cpu, not gpu"].startswith("board mi300x: rocm refuses it: graph main: the backend needs")


def test_mi300x__everything_on_the_gpu_or_nothing(compiled: Compile) -> None:
    """Who demands the GPU is told which model it cannot take."""
    with pytest.raises(
        Unsupported, match=r"graph main: gpu cannot take the model, .*\(--board mi300x:gpu\): the backend"
    ):
        compiled("mi300x:gpu", picture("Conv"))


def test_host__takes_its_own_target(compiled: Compile, registry: Registry) -> None:
    """The same package here: one target for all, as ever."""
    one = bind_here(open_package(compiled("orin", picture("Conv"))), "host", registry=registry)

    assert [target.backend for target in one.targets] == ["cpu"]
    assert (one.degraded, one.models) == (None, ("llm", "vad", "read", "detect"))
