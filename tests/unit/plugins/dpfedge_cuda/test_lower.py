# SPDX-License-Identifier: Apache-2.0
"""Lowering for GPUs: what is rewritten, what is refused by name, and that bytes repeat."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from dpfedge_cuda.lower import lower
from dpfedge_reference.evaluator import evaluate
from onnx import TensorProto

from dpfedge.backend.api import LoweredGraph, LowerRequest
from dpfedge.compiler.formats import Form
from dpfedge.compiler.graph_formats import in_form
from dpfedge.errors import Unsupported
from dpfedge.testing.cases import Case, cases

GRAPHS = "cuda_graph=where shapes are fixed"


def case_of(name: str) -> Case:
    """One of the suite's."""
    (found,) = (one for one in cases() if one.name == name)
    return found


def lowered(case: Case, arch: str = "sm_90", **options: object) -> LoweredGraph:
    """Its graph for a GPU."""
    model = case.model(evaluate(case.model(), case.feeds))
    return lower(LowerRequest("graph", model.SerializeToString(), arch, frozenset(), options))


def operators(graph: LoweredGraph) -> list[str]:
    """Of the lowered graph, in order."""
    return [node.op_type for node in onnx.ModelProto.FromString(graph.code).graph.node]


def test_lower__repeats_to_the_byte() -> None:
    """However often; weights lie apart."""
    first, second = (lowered(case_of("Conv/f32")) for _ in range(2))
    assert first.code == second.code
    assert list(first.weights) == list(second.weights)


def test_lower__attention_in_half_precision() -> None:
    """The provider has GroupQueryAttention for 16-bit floats only; ports keep their dtypes."""
    graph = lowered(case_of("GroupQueryAttention-step/f32"))
    kinds = operators(graph)
    assert kinds.count("GroupQueryAttention") == 1
    assert set(kinds) == {"GroupQueryAttention", "Cast"}
    assert {spec.dtype for spec in graph.outputs} == {"f32"}
    assert any(choice.startswith("attention=f16") for choice, _ in graph.decisions)
    assert graph.arithmetic == "half"
    assert lowered(case_of("GroupQueryAttention-step/f32"), tf32=True).arithmetic == "half"


def test_lower__quantised_products_become_floats() -> None:
    """With the decision and its rule."""
    graph = lowered(case_of("DynamicQuantizeMatMul/f32"))
    assert operators(graph) == ["MatMul"]
    assert next(iter(graph.weights.values())).dtype == np.float32
    assert any(choice == "int8=dequantised, 1 products" for choice, _ in graph.decisions)
    assert graph.arithmetic == "dequantised"


@pytest.mark.parametrize("wanted", [False, True])
def test_lower__tf32_only_when_asked(wanted: bool) -> None:
    """Sums in another format are the package's choice, and its golden tolerance follows."""
    graph = lowered(case_of("MatMul/f32"), tf32=wanted)
    assert f"tf32={'on' if wanted else 'off'}" in dict(graph.decisions)
    assert graph.arithmetic == ("tf32" if wanted else "graph")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("DynamicQuantizeLinear/f32", "1×DynamicQuantizeLinear"),
        ("MatMulInteger/u8", "1×MatMulInteger"),
        ("Pad/i64", "1×Pad"),
    ],
)
def test_lower__refuses_by_name(name: str, found: str) -> None:
    """At compile time, not on the first request; and says what to do instead."""
    with pytest.raises(Unsupported, match=rf"graph graph: .*no kernel.*; found {found}; place the stage on the CPU"):
        lowered(case_of(name))


@pytest.mark.parametrize("arch", ["gfx942", "sm_35", "x86-64-v3", ""])
def test_lower__for_other_processors(arch: str) -> None:
    """Not this backend's."""
    with pytest.raises(Unsupported, match="no GPU of this backend"):
        lowered(case_of("MatMul/f32"), arch)


def test_lower__keeps_sixteen_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the package, and in what the GPU multiplies; the compiling CPU's casts are not among it."""
    monkeypatch.setattr("dpfedge.compiler.graph_formats._MIN_ELEMENTS", 1)
    case = case_of("MatMul/f32")
    model, _ = in_form(case.model(evaluate(case.model(), case.feeds)), Form("fp16", "FLOAT16"))
    graph = lower(LowerRequest("graph", model.SerializeToString(), "sm_90", frozenset()))
    lowered = onnx.ModelProto.FromString(graph.code).graph
    assert [node.op_type for node in lowered.node] == ["Cast", "MatMul", "Cast"]
    assert [tensor.data_type for tensor in lowered.initializer] == [TensorProto.FLOAT16]
    assert [choice for choice, _ in graph.decisions] == ["optimiser=none", "fp16=1 products", "tf32=off", GRAPHS]
    assert graph.arithmetic == "half"
