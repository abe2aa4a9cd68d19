# SPDX-License-Identifier: Apache-2.0
"""Golden values from the reference run, their tolerances, and damaged weights they find."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import onnx
import pytest
import xxhash
from dpfedge_cpu import CpuBackend
from made_gguf import llama_file
from onnx import TensorProto, helper

from dpfedge.backend.registry import Registry
from dpfedge.binding import bind_here
from dpfedge.binding.golden import require_golden, run_golden
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.families import Imported
from dpfedge.compiler.golden import make_cases, tolerance, write_cases
from dpfedge.compiler.nodes import MICROSOFT, Nodes
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import BackendError
from dpfedge.package import PackageWriter, open_package
from dpfedge.package.layout import pack_header, unpack_header
from dpfedge.tensors import TensorSpec

RECIPE = """\
name: tiny
version: "1"
models:
  llm: {family: llama, source: "folder:llm", licence: Apache-2.0, context: 16, mode: MODE}
pipeline:
  stages:
    llm: {model: llm}
"""


def registry() -> Registry:
    """The CPU backend."""
    made = Registry()
    made.add(CpuBackend())
    return made


@pytest.fixture(scope="module", params=["exact", "fast"])
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model for this machine, in both modes."""
    folder = tmp_path_factory.mktemp("golden")
    (folder / "llm").mkdir()
    llama_file(folder / "llm")
    (folder / "tiny.yaml").write_text(RECIPE.replace("MODE", request.param))
    path = folder / "tiny.dpfbin"
    compile_package(load_recipe(folder / "tiny.yaml"), path, boards=["host"], registry=registry())
    return path


def test_golden__passes_here(package: Path) -> None:
    """The lowered graph answers as the reference does: logits and the last layer's cache, for a prompt and a step."""
    with open_package(package) as opened:
        results = require_golden(bind_here(opened, "host", registry=registry()))

    assert {(result.case, result.port) for result in results} == {
        (case, port) for case in (0, 1) for port in ("logits", "present.1.key", "present.1.value")
    }
    assert max(result.excess for result in results) < 0.8


def damaged(path: Path, target: Path, section: str, offset: int, mask: int) -> Path:
    """A copy with one byte changed and every digest made to fit again."""
    data = bytearray(path.read_bytes())
    header = unpack_header(bytes(data[:128]), "test")
    with open_package(path) as package:
        found = package.find(section)
    data[found.offset + offset] ^= mask
    content = bytes(data[found.offset : found.end])
    manifest = bytes(data[header.manifest_offset : header.manifest_offset + header.manifest_bytes])
    manifest = manifest.replace(found.sha256, hashlib.sha256(content).digest())
    manifest = manifest.replace(found.xxh3, xxhash.xxh3_128_digest(content))
    data[header.manifest_offset : header.manifest_offset + header.manifest_bytes] = manifest
    fields = {name: getattr(header, name) for name in header.__slots__}
    data[:128] = pack_header(type(header)(**{**fields, "manifest_sha256": hashlib.sha256(manifest).digest()}))
    target.write_bytes(data)
    return target


def scales(package: Path) -> dict[str, tuple[str, int]]:
    """Matrix → (section, offset) of the top byte of one of its scales that is not zero and below 2."""
    places = {}
    with open_package(package) as opened:
        graph = opened.manifest.targets[0].models["llm"].graphs["llm"]
        model = onnx.ModelProto.FromString(bytes(opened.section(graph.section)))
        code = bytes(opened.section(graph.section))
        for tensor in model.graph.initializer:
            kind = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16}.get(tensor.data_type)
            if kind is None or not tensor.name.endswith(("/scales", ".scales")):
                continue
            place = {entry.key: entry.value for entry in tensor.external_data}
            section, start, raw = graph.section, code.rfind(tensor.raw_data), tensor.raw_data
            if place:
                section, start = place["location"], int(place["offset"])
                raw = bytes(opened.section(section)[start : start + int(place["length"])])
            values = np.frombuffer(raw, kind)
            index = int(np.argmax(np.where(np.abs(values) < 2, np.abs(values), 0)))
            places[tensor.name] = (section, start + values.itemsize * (index + 1) - 1)
    return places


def test_golden__finds_a_damaged_weight(package: Path, tmp_path: Path) -> None:
    """The top bit of the exponent of one scale, flipped before the digests were made, is found in every matrix."""
    found = scales(package)

    assert len(found) >= 3
    for section, offset in found.values():
        path = damaged(package, tmp_path / "bad.dpfbin", section, offset, 0x40)
        with open_package(path, check="full") as opened:
            bound = bind_here(opened, "host", registry=registry())
            with pytest.raises(BackendError, match=r"llm\.llm: .* golden run failed on \d of 6 outputs"):
                require_golden(bound)


def model_of(*ops: str, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A model with these operators; it need not run."""
    nodes = [helper.make_node(op, ["x"], [f"y{index}"]) for index, op in enumerate(ops)]
    weight = helper.make_tensor("w", dtype, [1], b"\0" * (2 if dtype != TensorProto.FLOAT else 4), raw=True)
    return helper.make_model(helper.make_graph(nodes, "g", [], [], [weight]))


def test_tolerance__by_rule() -> None:
    """The coarsest arithmetic in the graph decides."""
    block = Nodes("g")
    block.add("MatMulNBits", ["x"], "y", domain=MICROSOFT, accuracy_level=4)

    assert tolerance(model_of("Conv"))[0] == 0.001
    assert tolerance(model_of("Conv", dtype=TensorProto.FLOAT16))[0] == 0.01
    assert tolerance(model_of("Conv", "DynamicQuantizeLinear"))[0] == 0.05
    assert tolerance(model_of("Conv"), arithmetic="tf32")[0] == 0.004
    assert tolerance(model_of("Conv", "DynamicQuantizeLinear"), arithmetic="half")[0] == 0.05
    assert tolerance(model_of("Conv", "DynamicQuantizeLinear"), arithmetic="dequantised")[0] == 0.19
    assert tolerance(block.model([], []), arithmetic="block16")[0] == 0.005
    assert tolerance(block.model([], [])) == (
        0.12,
        "activations are quantised to 8 bits per block: up to 6 % off on real models, and twice that is bad",
    )


def imported(nodes: Nodes, inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Imported:
    """One graph `main`."""
    return Imported({"main": nodes.model(inputs, outputs)}, {}, {})


def test_make_cases__random_graphs_and_near_ties() -> None:
    """What a graph draws and a choice that rounding turns over are not recorded; the rest is."""
    nodes = Nodes("g")
    nodes.add("RandomUniform", [], "drawn", shape=[4])
    nodes.add("Identity", ["x"], "copy")
    tiny = nodes.add("Mul", ["x", nodes.constant("zero", np.array(0, np.float32))], "equal")
    noise = nodes.add("Add", [tiny, nodes.add("Mul", ["x", "x"], "square")], "sum")
    nodes.add("Sub", [noise, "square"], "nothing")
    outputs = [TensorSpec(name, "f32", (4,)) for name in ("drawn", "copy")]
    cases, notes = make_cases("m", "onnx", imported(nodes, [TensorSpec("x", "f32", (4,))], outputs))

    assert [sorted(case.outputs) for case in cases] == [["copy"]]
    assert notes == {"main": ("golden=rel_l2≤0.001", "float32 throughout: only the order of sums differs")}


def test_make_cases__a_graph_nothing_fits(tmp_path: Path) -> None:
    """A graph that no generated input runs has no golden values, and the decision says why."""
    nodes = Nodes("g")
    nodes.add("Reshape", ["x", nodes.constant("shape", np.array([7, 11], np.int64))], "y")
    cases, notes = make_cases(
        "m", "onnx", imported(nodes, [TensorSpec("x", "f32", ("a",))], [TensorSpec("y", "f32", (7, 11))])
    )

    assert cases == []
    assert notes["main"][0] == "golden=none"
    assert "no generated input could be run" in notes["main"][1]
    with PackageWriter(tmp_path / "none.dpfbin", name="none", version="1") as writer:
        assert write_cases(writer, "m", cases) == []


def test_make_cases__large_outputs_are_cut(tmp_path: Path) -> None:
    """Of a large output the last elements are stored; equal arrays are stored once."""
    nodes = Nodes("g")
    nodes.add("Expand", ["x", nodes.constant("shape", np.array([3, 1, 50_000], np.int64))], "y")
    nodes.add("Identity", ["x"], "z")
    outputs = [TensorSpec("y", "f32", (3, 1, 50_000)), TensorSpec("z", "f32", (1,))]
    cases, _ = make_cases("m", "onnx", imported(nodes, [TensorSpec("x", "f32", (1,))], outputs))
    with PackageWriter(tmp_path / "cut.dpfbin", name="cut", version="1") as writer:
        (record,) = write_cases(writer, "m", cases)

    assert (record["outputs"]["y"]["dims"], record["outputs"]["y"]["at"]) == ([1, 1, 50_000], [2, 0, 0])
    assert record["outputs"]["y"]["whole"] == [3, 1, 50_000]
    assert record["outputs"]["z"]["offset"] == record["inputs"]["x"]["offset"] == 0


def test_golden__same_twice(package: Path) -> None:
    """Making the values again gives the same."""
    with open_package(package) as opened:
        bound = bind_here(opened, "host", registry=registry())
        first, again = (run_golden(bound) for _ in range(2))

    assert first == again
