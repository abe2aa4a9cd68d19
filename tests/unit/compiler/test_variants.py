# SPDX-License-Identifier: Apache-2.0
"""One model in the forms its targets need, each made and measured once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from dpfedge_cpu import CpuBackend
from made_folder import hf_folder
from made_products import graph

from dpfedge.backend.api import Capabilities, Device
from dpfedge.compiler.families import Options
from dpfedge.compiler.formats import KEEP
from dpfedge.compiler.recipe import ModelSource
from dpfedge.compiler.targets import TargetPlan
from dpfedge.compiler.variants import Variants
from dpfedge.errors import ModelError, Unsupported

CPU = TargetPlan("cpu-x86-64-v3", "cpu", "cpu.x86_64", "x86-64-v3", frozenset(), (), ())
ARM = TargetPlan("cpu-armv8.0-a", "cpu", "cpu.aarch64", "armv8.0-a", frozenset(), (), ())
GPU = TargetPlan("gpu-gfx942", "fixed", "gpu.amd", "gfx942", frozenset(), (), ())


class Fixed(CpuBackend):
    """A backend that needs fixed shapes."""

    name = "fixed"

    def capabilities(self, device: Device) -> Capabilities:
        """No dynamic shapes."""
        return Capabilities(frozenset({"f32"}), dynamic_shapes=False, arena_in_place=True)


def variants(folder: Path, family: str = "onnx", **changes: Any) -> tuple[Variants, list[str]]:
    """A model and what is said while it is made."""
    said: list[str] = []
    files = {"main": folder / "main.onnx"}
    if family == "onnx":
        onnx.save(graph(), str(files["main"]))
    else:
        hf_folder(folder)
        files = {"config": folder / "config.json", "tokenizer": folder / "tokenizer.json",
                 "weights": folder / "model.safetensors"}  # fmt: skip
    source = ModelSource("m", family, "folder", "m", "r.yaml:4", "MIT", {}, None, None, **changes)
    return Variants(source, files, Options("fast", 16), said.append), said


def operators(model: onnx.ModelProto) -> set[str]:
    """Kinds of nodes."""
    return {node.op_type for node in model.graph.node}


def test_variants__keep(tmp_path: Path) -> None:
    """Without a format the original goes to every target and nothing is measured."""
    made, said = variants(tmp_path)

    assert made.of(CPU, CpuBackend()).graphs["main"] is made.in_form(KEEP).imported.graphs["main"]
    assert made.figures() == {}
    assert said == []


def test_variants__made_once(tmp_path: Path) -> None:
    """Two CPUs share one converted and measured model; figures and decisions say what it costs."""
    made, said = variants(tmp_path, weights="int8", max_loss=0.1)
    first, second = made.of(CPU, CpuBackend()), made.of(ARM, CpuBackend())

    assert first.graphs["main"] is second.graphs["main"]
    assert said == ["m: convert to int8", "m: quality of int8"]
    assert "MatMulInteger" in operators(first.graphs["main"])
    assert 0 < made.figures()["int8"]["loss"] < 0.05
    assert [choice for choice, _ in first.decisions] == [
        "int8=2 products", f"quality of int8: loss {made.figures()['int8']['loss']:g}",
    ]  # fmt: skip


def test_variants__nothing_to_convert(tmp_path: Path) -> None:
    """A graph without constant products stays as it is, with the reason and without figures."""
    made, _ = variants(tmp_path, weights="int8", max_loss=0)
    ports = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 8]) for name in "xy"]
    relu = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", ports[:1], ports[1:])
    plain = onnx.helper.make_model(relu, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(plain, str(tmp_path / "main.onnx"))
    found = made.of(CPU, CpuBackend())

    assert [choice for choice, _ in found.decisions] == ["weights=keep, not int8"]
    assert made.figures() == {}


def test_variants__too_much_loss(tmp_path: Path) -> None:
    """The recipe's limit stops the compile with the figures."""
    made, _ = variants(tmp_path, weights="int4", max_loss=0.001)

    with pytest.raises(ModelError, match=r"r\.yaml:4: weights: int4 costs more than max_loss; .*rel_l2 0"):
        made.of(CPU, CpuBackend())


def test_variants__decoder(tmp_path: Path) -> None:
    """A decoder is built anew in its format, and measured by perplexity."""
    made, _ = variants(tmp_path / "hf", "decoder", weights="int4-asymmetric")
    found = made.of(CPU, CpuBackend())

    assert "MatMulNBits" in operators(found.graphs["llm"])
    assert "MatMulNBits" not in operators(made.in_form(KEEP).imported.graphs["llm"])
    assert made.figures()["int4-asymmetric"]["perplexity_before"] > 1
    assert any(choice == "int4=block 32 with zero points" for choice, _ in found.decisions)


def test_variants__floats_by_target(tmp_path: Path) -> None:
    """fp16 is kept on a CPU, with the reason, and stored on a GPU; fp8 is refused on a CPU."""
    made, _ = variants(tmp_path / "hf", "decoder", weights="fp16")
    kept, half = made.of(CPU, CpuBackend()), made.of(GPU, CpuBackend())

    assert ("weights=keep, not fp16" in dict(kept.decisions), kept.graphs["llm"]) == (
        True, made.in_form(KEEP).imported.graphs["llm"],
    )  # fmt: skip
    assert "Cast" in operators(half.graphs["llm"])
    made, _ = variants(tmp_path / "hf", "decoder", weights="fp8")
    assert "DequantizeLinear" in operators(made.of(GPU, CpuBackend()).graphs["llm"])
    with pytest.raises(Unsupported, match=r"r\.yaml:4: target cpu-x86-64-v3: weights: fp8 needs"):
        made.of(CPU, CpuBackend())


def test_variants__buckets(tmp_path: Path) -> None:
    """A backend of dynamic shapes gets buckets beside the graph, another one only those, and none without any."""
    made, _ = variants(tmp_path, buckets={"n": [8, 4]})
    assert list(made.of(CPU, CpuBackend()).graphs) == ["main", "main@n-4", "main@n-8"]
    assert list(made.of(CPU, Fixed()).graphs) == ["main@n-4", "main@n-8"]

    made, _ = variants(tmp_path)
    with pytest.raises(Unsupported, match=r"r\.yaml:4: graph main: the backend needs fixed shapes; found n"):
        made.of(CPU, Fixed())


def test_first__the_form_of_a_target_that_has_one(tmp_path: Path) -> None:
    """Numbers and assets are the same in every form, so a target that lacks the form asked for is passed over."""
    made, _ = variants(tmp_path, weights="fp8")
    v3 = TargetPlan("cpu", "cpu", "cpu.x86_64", "x86-64-v3", frozenset(), (), ())
    gpu = TargetPlan("gpu", "cuda", "gpu.nvidia", "sm_90", frozenset(), (), ())

    assert made.first([v3, gpu]) is made.in_form(made.form(gpu)).imported
    with pytest.raises(Unsupported, match="weights: fp8 needs an architecture with 8-bit floats"):
        made.first([v3])


def test_variants__without_buckets_of_their_own(tmp_path: Path) -> None:
    """Who cannot give a family buckets is not told to."""
    made, _ = variants(tmp_path, "llama")
    plan = TargetPlan("t", "fixed", "gpu.amd", "gfx942", frozenset(), (), ())

    with pytest.raises(Unsupported, match="fixed shapes; found n, total; its family has no buckets"):
        made.of(plan, Fixed())


def test_compared__the_smallest_bucket_too(tmp_path: Path) -> None:
    """So that a target with fixed shapes only has something that its device must answer rightly."""
    made, _ = variants(tmp_path, buckets={"n": [8, 4]})

    assert list(made.compared(made.form(CPU)).graphs) == ["main", "main@n-4"]
    made, _ = variants(tmp_path)
    assert list(made.compared(made.form(CPU)).graphs) == ["main"]
