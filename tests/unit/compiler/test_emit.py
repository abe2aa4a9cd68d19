# SPDX-License-Identifier: Apache-2.0
"""From a recipe to a package that opens, binds weights in place and runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.session import CpuExecutable
from google.protobuf.message import EncodeError
from made_decoder import reference_logits
from made_folder import gguf_file, hf_folder
from made_gguf import VOCABULARY, llama_file
from made_graphs import relative
from onnx import TensorProto, helper

from dpfedge.backend.api import Budget, Capabilities, Device, GraphView, LoweredGraph, LowerRequest
from dpfedge.backend.registry import Registry
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.compiler.targets import TargetPlan
from dpfedge.errors import BackendError, ModelError, Unsupported
from dpfedge.package import Package, open_package

RECIPE = """\
name: tiny
version: "1"
models:
  vad: {family: silero-vad, source: "folder:vad", licence: MIT}
  llm: {family: llama, source: "folder:llm", licence: Apache-2.0, context: 16, mode: exact}
pipeline:
  stages:
    decoder: {model: vad}
    llm: {model: llm}
"""


def vad() -> onnx.ModelProto:
    """Something with the ports of a Silero model."""
    values = [("input", [None, None]), ("state", [2, None, 128])]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in values]
    inputs.append(helper.make_tensor_value_info("sr", TensorProto.INT64, []))
    nodes = [helper.make_node("ReduceMean", ["input"], ["output"]), helper.make_node("Identity", ["state"], ["stateN"])]
    outputs = [
        helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1]),
        helper.make_tensor_value_info("stateN", TensorProto.FLOAT, [2, 1, 128]),
    ]
    graph = helper.make_graph(nodes, "vad", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe and the folders it names."""
    for name in ("vad", "llm"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "LICENSE").write_text(f"terms of {name}")
    (tmp_path / "vad" / "vad.onnx").write_bytes(vad().SerializeToString())
    llama_file(tmp_path / "llm")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return tmp_path


def compiled(folder: Path, name: str = "tiny.dpfbin", boards: tuple[str, ...] = ("host",), **options: str) -> Path:
    """Compile the recipe."""
    registry = Registry()
    registry.add(CpuBackend())
    compile_package(load_recipe(folder / "tiny.yaml"), folder / name, boards=boards, registry=registry, **options)
    return folder / name


def load(package: Package, model: str, graph: str, target: int = 0) -> CpuExecutable:
    """A graph of the package as binding would load it."""
    found, backend = package.manifest.targets[target].models[model].graphs[graph], CpuBackend()
    weights = {name: package.section(name) for name in found.weights}
    view = GraphView(graph, package.section(found.section), found.inputs, found.outputs, weights, found.options)
    return backend.load(view, backend.devices(Path("/"))[0], Budget())


def test_compile_package__opens_and_runs(folder: Path) -> None:
    """The model in the package gives the reference's logits."""
    package = open_package(compiled(folder))
    graph = load(package, "llm", "llm")
    ids = [1, 5, 9]
    feeds = {spec.name: np.zeros(spec.dims, np.float32) for spec in graph.inputs if spec.dtype == "f32"}
    logits = graph.run({"input_ids": np.array([ids]), "attention_mask": np.ones((1, 3), np.int64), **feeds})["logits"]

    assert logits.shape == (1, 1, VOCABULARY)
    assert relative(logits[0, 0], reference_logits(folder / "llm" / "tiny.gguf", ids)) < 1e-4


def test_compile_package__manifest(folder: Path) -> None:
    """Families, numbers, assets, licences and decisions are in the manifest."""
    package = open_package(compiled(folder))
    manifest = package.manifest

    assert manifest.models["llm"].config["context"] == 16
    assert manifest.models["llm"].config["eos"] == (0,) or manifest.models["llm"].config["eos"] == [0]
    assert bytes(package.section(manifest.models["llm"].assets["chat_template.jinja"])) == b"{{ messages }}"
    assert {(item.name, item.spdx) for item in manifest.licences} == {("vad", "MIT"), ("llm", "Apache-2.0")}
    assert bytes(package.section(str(manifest.licences[0].section))) == b"terms of vad"
    assert any(choice == "llm: mode=exact" for choice, _ in manifest.targets[0].decisions)
    assert manifest.pipeline["stages"]["decoder"] == {"model": "vad"}


def test_compile_package__a_backend_that_breaks_its_contract(folder: Path) -> None:
    """What its lowering raises of its own is told with backend and model; nothing is written."""

    class Raw(CpuBackend):
        def lower(self, request: LowerRequest) -> LoweredGraph:
            raise ZeroDivisionError("layout")

    registry = Registry()
    registry.add(Raw())
    with pytest.raises(BackendError, match=r"^backend cpu: model (vad|llm): it broke its contract; found ZeroDivis"):
        compile_package(load_recipe(folder / "tiny.yaml"), folder / "raw.dpfbin", boards=("host",), registry=registry)
    assert not (folder / "raw.dpfbin").exists()


def test_compile_package__same_bytes(folder: Path) -> None:
    """Twice the same inputs, twice the same file, whatever the order of boards."""
    first = compiled(folder, "a.dpfbin", ("host", "rk3588")).read_bytes()

    assert compiled(folder, "b.dpfbin", ("rk3588", "host")).read_bytes() == first


def test_compile_package__weights_once(folder: Path) -> None:
    """A second target adds graphs, not weights; tied embedding and output are one tensor."""
    one, two = (open_package(compiled(folder, f"{len(b)}.dpfbin", b)) for b in (("host",), ("host", "rk3588")))
    sizes = [sum(s.size for s in p.manifest.sections if s.kind == "weights") for p in (one, two)]

    assert sizes[0] == sizes[1]
    assert len(two.manifest.targets) == 2
    names = [section.name for section in two.manifest.sections if section.kind == "weights"]
    assert names == ["weights.llm.1"]  # of no target, since both use them


def test_compile_package__mode_overrules(folder: Path) -> None:
    """The caller's mode wins over the recipe's."""
    package = open_package(compiled(folder, mode="fast"))

    assert package.manifest.models["llm"].config["mode"] == "fast"


def test_compile_package__damaged_model_leaves_nothing(folder: Path) -> None:
    """A model that cannot be imported leaves no file behind."""
    path = folder / "llm" / "tiny.gguf"
    path.write_bytes(path.read_bytes()[:1000])

    with pytest.raises(ModelError, match=r"expected \d+ bytes, have 1000"):
        compiled(folder)
    assert not list(folder.glob("*.dpfbin")) + list(folder.glob(".*"))


def test_compile_package__missing_file(folder: Path) -> None:
    """A role without a file names the place in the recipe."""
    (folder / "vad" / "vad.onnx").unlink()

    with pytest.raises(ModelError, match=r"tiny\.yaml:4: no file for model; found LICENSE; allowed \*\.onnx"):
        compiled(folder)


def test_compile_package__formats(folder: Path) -> None:
    """A changed format is in the decisions and in the model's numbers, and the package runs with it."""
    text = (folder / "tiny.yaml").read_text().replace("context: 16, mode: exact", "context: 16, weights: int8")
    (folder / "tiny.yaml").write_text(text)
    package = open_package(compiled(folder, boards=("host", "rk3588")))
    figures = package.manifest.models["llm"].config["formats"]["int8"]
    decisions = dict(package.manifest.targets[0].decisions)

    assert figures["perplexity_before"] > 1
    assert figures["loss"] >= 0
    assert any(choice.startswith("llm: quality of int8: loss") for choice in decisions)
    assert any("block 32" in choice for choice in decisions)
    assert load(package, "llm", "llm").outputs[0].dims == (1, 1, VOCABULARY)
    assert {record.target for record in package.manifest.golden} == {None}


def test_compile_package__buckets(folder: Path) -> None:
    """Each size is a graph of its own; all of them read the same weights, which lie in the package once."""
    matrix = np.random.default_rng(4).standard_normal((64, 64)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["frames", 64])] for name in "xy"]
    graph = helper.make_graph(nodes, "g", *ports, [onnx.numpy_helper.from_array(matrix, "w")])
    (folder / "any").mkdir()
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "any" / "g.onnx"
    )
    text = 'name: tiny\nversion: "1"\nmodels:\n  m: {family: onnx, source: "folder:any", licence: MIT, BUCKETS}\n'
    sizes = {}
    for name, buckets in (("plain", "mode: fast"), ("bucketed", "buckets: {frames: [16, 64]}")):
        (folder / "tiny.yaml").write_text(text.replace("BUCKETS", buckets))
        package = open_package(compiled(folder, f"{name}.dpfbin"))
        sizes[name] = sum(section.size for section in package.manifest.sections if section.kind == "weights")
    graphs = package.manifest.targets[0].models["m"].graphs

    assert sizes["plain"] == sizes["bucketed"] == matrix.nbytes
    assert list(graphs) == ["main", "main@frames-16", "main@frames-64"]
    assert graphs["main@frames-16"].options["bucket"] == {"graph": "main", "sizes": {"frames": 16}}
    x = np.random.default_rng(5).standard_normal((16, 64)).astype(np.float32)
    assert relative(load(package, "m", "main@frames-16").run({"x": x})["y"], x @ matrix) < 1e-5


def test_compile_package__too_large_for_onnx(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph beyond protobuf's 2 GiB is refused with the way out, and leaves no file."""

    def fail(model: onnx.ModelProto) -> bytes:
        raise EncodeError("Failed to serialize proto")

    monkeypatch.setattr("dpfedge.compiler.emit._bytes_of", fail)
    with pytest.raises(
        Unsupported, match=r"graph vad\.vad: the graph is larger than ONNX can hold; .*weights: int8 or int4"
    ):
        compiled(folder)
    assert not list(folder.glob("*.dpfbin"))


def test_compile_package__hugging_face_folder(folder: Path) -> None:
    """A folder of safetensors becomes the package its GGUF becomes: equal weights, graphs and answers."""
    recipe = (
        'name: x\nversion: "1"\nmodels:\n  llm: {family: decoder, source: "folder:DIR", licence: MIT, context: 16}\n'
    )
    (folder / "gguf").mkdir()
    gguf_file(folder / "gguf" / "model.gguf", "qwen3", tokenizer=True)
    hf_folder(folder / "hf", "qwen3")
    answers = []
    for name in ("gguf", "hf"):
        (folder / "tiny.yaml").write_text(recipe.replace("DIR", name))
        graph = load(open_package(compiled(folder, f"{name}.dpfbin")), "llm", "llm")
        feeds = {spec.name: np.zeros(spec.dims, np.float32) for spec in graph.inputs if spec.dtype == "f32"}
        feeds |= {"input_ids": np.array([[1, 5, 9]]), "attention_mask": np.ones((1, 3), np.int64)}
        answers.append(graph.run(feeds)["logits"])

    assert relative(answers[0], answers[1]) < 1e-6


def test_compile_package__forms_differ_by_target(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets with different forms of one model have golden values of their own; a model with one form has one set."""
    text = (folder / "tiny.yaml").read_text().replace("mode: exact", "mode: exact, weights: fp16")
    (folder / "tiny.yaml").write_text(text)
    plans = [
        TargetPlan(id, "cpu", kind, arch, frozenset(), (), ())
        for id, kind, arch in (("cpu", "cpu.x86_64", "x86-64-v3"), ("gpu", "gpu.nvidia", "sm_87"))
    ]
    monkeypatch.setattr("dpfedge.compiler.emit.plan_targets", lambda *_: plans)
    manifest = open_package(compiled(folder)).manifest
    records = {(record.model, record.target, record.section) for record in manifest.golden}

    assert records == {
        ("vad", None, "golden.vad"), ("llm", "cpu", "golden.llm.keep"), ("llm", "gpu", "golden.llm.float16"),
    }  # fmt: skip
    assert list(manifest.models["llm"].config["formats"]) == ["fp16"]
    assert any(choice == "llm: weights=keep, not fp16" for choice, _ in manifest.targets[0].decisions)
    assert any(choice.startswith("llm: fp16=") for choice, _ in manifest.targets[1].decisions)


def test_compile_package__tolerances_follow_the_targets_arithmetic(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A target that computes in 16-bit floats may be off by more, and only there; what both compute alike is shared."""
    lower = CpuBackend.lower

    def coarse(self: CpuBackend, request: LowerRequest) -> LoweredGraph:
        half = request.arch == "armv8.2-a" and request.name == "llm.llm"
        return replace(lower(self, request), arithmetic="half" if half else "graph")

    monkeypatch.setattr(CpuBackend, "lower", coarse)
    manifest = open_package(compiled(folder, boards=("host", "rk3588"))).manifest
    allowed = {(r.model, r.target): r.outputs["logits" if r.model == "llm" else "output"] for r in manifest.golden}
    board, host = (target.id for target in manifest.targets)

    assert {key: tensor.rel_l2 for key, tensor in allowed.items()} == {
        ("vad", None): 0.001, ("llm", host): 0.001, ("llm", board): 0.01,
    }  # fmt: skip
    assert {r.section for r in manifest.golden} == {"golden.vad", "golden.llm.keep", "golden.llm.keep.1"}
    assert ["llm.llm: golden=rel_l2≤0.01", "arithmetic in 16-bit floats"] in [
        list(d) for d in manifest.targets[0].decisions
    ]


class FakeGpu(CpuBackend):
    """A stand-in that lowers for GPUs as the CPU does, but refuses some graphs; it has no device."""

    def __init__(self, *refuses: str, dynamic: bool = True) -> None:
        self.name, self._refuses, self._dynamic = "rocm", refuses, dynamic  # type: ignore[misc]

    def capabilities(self, device: Device) -> Capabilities:
        return replace(super().capabilities(device), dynamic_shapes=self._dynamic)

    def lower(self, request: LowerRequest) -> LoweredGraph:
        if request.name in self._refuses:
            raise Unsupported("an operator it lacks", where=f"graph {request.name}", found="LSTM")
        return super().lower(replace(request, arch="x86-64-v3"))


def placed(folder: Path, gpu: FakeGpu, *boards: str) -> Package:
    """The recipe compiled for boards with that GPU."""
    registry = Registry()
    registry.add(CpuBackend())
    registry.add(gpu)
    compile_package(load_recipe(folder / "tiny.yaml"), folder / "placed.dpfbin", boards=boards, registry=registry)
    return open_package(folder / "placed.dpfbin")


def held(package: Package) -> list[tuple[str, list[str]]]:
    """Backend and models of each target."""
    return [(target.backend, sorted(target.models)) for target in package.manifest.targets]


def test_compile_package__each_model_for_its_device(folder: Path) -> None:
    """The vad is placed on the CPU by the board file; the llm goes to the GPU, and to the CPU for who allows that."""
    package = placed(folder, FakeGpu(), "mi300x")

    assert held(package) == [("rocm", ["llm"]), ("cpu", ["llm", "vad"])]
    gpu, cpu = ([choice for choice, _ in target.decisions] for target in package.manifest.targets)
    assert "llm: device=gpu" in gpu
    assert [choice for choice in cpu if "device=" in choice] == ["vad: device=cpu"]


def test_compile_package__what_the_accelerator_refuses_runs_on_the_cpu(folder: Path) -> None:
    """By decision, with the reason; a target that took no model is left out, and so is its plugin's version."""
    package = placed(folder, FakeGpu("llm.llm"), "mi300x", "mi325x")

    assert held(package) == [("cpu", ["llm", "vad"])]
    decisions = dict(package.manifest.targets[0].decisions)
    assert decisions["llm: device=cpu, not gpu"] == (
        "board mi300x, mi325x: rocm refuses it: graph llm.llm: an operator it lacks; found LSTM"
    )
    assert b"dpfedge-rocm" not in bytes(package.section("sbom.cdx.json"))


def test_compile_package__a_device_that_is_demanded(folder: Path) -> None:
    """`--board ID:DEVICE` is strict: all models there, or an error and no file."""
    assert held(placed(folder, FakeGpu(), "mi300x:gpu")) == [("rocm", ["llm", "vad"]), ("cpu", ["llm", "vad"])]
    (folder / "placed.dpfbin").unlink()
    with pytest.raises(
        Unsupported, match=r"board mi300x: graph llm\.llm: gpu cannot take the model, .*--board mi300x:gpu"
    ):
        placed(folder, FakeGpu("llm.llm"), "mi300x:gpu")
    assert not (folder / "placed.dpfbin").exists()


def test_compile_package__fixed_shapes_where_the_recipe_has_buckets(folder: Path) -> None:
    """A device that needs fixed shapes gets the buckets of a model that has them; the one without goes to the CPU.

    Golden values are of the graph that the buckets stand for, and of the smallest bucket.
    """
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
    for name in ("net", "open"):
        (folder / name).mkdir()
        (folder / name / "net.onnx").write_bytes(model.SerializeToString())
    rows = ["net: {family: onnx, source: \"folder:net\", licence: MIT, buckets: {n: [2, 8]}}",
            "open: {family: onnx, source: \"folder:open\", licence: MIT}"]  # fmt: skip
    (folder / "tiny.yaml").write_text('name: tiny\nversion: "1"\nmodels:\n  ' + "\n  ".join(rows) + "\n")
    package = placed(folder, FakeGpu(dynamic=False), "mi300x")

    assert held(package) == [("rocm", ["net"]), ("cpu", ["net", "open"])]
    assert sorted(package.manifest.targets[0].models["net"].graphs) == ["main@n-2", "main@n-8"]
    assert "the backend needs fixed shapes" in dict(package.manifest.targets[1].decisions)["open: device=cpu, not gpu"]
    assert {(record.model, record.graph) for record in package.manifest.golden} == {
        ("net", "main"), ("net", "main@n-2"), ("open", "main"),
    }  # fmt: skip
    assert any(choice == "net.main@n-2: golden=rel_l2≤0.001" for choice, _ in package.manifest.targets[0].decisions)


def test_compile_package__a_form_that_the_cpu_has_not(folder: Path) -> None:
    """8-bit floats are the GPU's alone: there is no fallback for that model, and the others have theirs."""
    text = (folder / "tiny.yaml").read_text().replace("mode: exact", "mode: exact, weights: fp8")
    (folder / "tiny.yaml").write_text(text)

    assert held(placed(folder, FakeGpu(), "mi300x")) == [("rocm", ["llm"]), ("cpu", ["vad"])]
    with pytest.raises(Unsupported, match="weights: fp8 needs an architecture with 8-bit floats"):
        placed(folder, FakeGpu(), "mi300x:cpu")
