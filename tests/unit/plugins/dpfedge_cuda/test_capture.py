# SPDX-License-Identifier: Apache-2.0
"""What may be captured: no replay may give another request's answer."""

from __future__ import annotations

import pytest
from dpfedge_cuda.capture import MARK, mark, obstacle
from dpfedge_reference.evaluator import evaluate

from dpfedge.testing.cases import Case, cases
from dpfedge.testing.models import affine


def case_of(name: str) -> Case:
    """One of the suite's."""
    (found,) = (one for one in cases() if one.name == name)
    return found


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("If-true/bool", "If decides on the host"),
        ("NonZero/f32", "NonZero decides on the host"),
        ("Range/i64", "Range reads a value of the request on the host"),
        ("ConstantOfShape/f32", "ConstantOfShape reads"),
        ("GroupQueryAttention-step/f32", "GroupQueryAttention reads"),
    ],
)
def test_obstacle__what_the_host_decides(name: str, reason: str) -> None:
    """A branch, a size, a length."""
    case = case_of(name)
    found = obstacle(case.model(evaluate(case.model(), case.feeds)).graph)
    assert found is not None
    assert found.startswith(reason)


@pytest.mark.parametrize(
    "name",
    ["MatMul/f32", "Conv/f32", "Reshape/f32", "Slice/f32", "Pad/f32", "ReduceMean/f32", "Gather/f32"],
)
def test_obstacle__none_where_only_constants_do(name: str) -> None:
    """Shapes and axes that stand in the graph; indices are read by the GPU."""
    case = case_of(name)
    assert obstacle(case.model(evaluate(case.model(), case.feeds)).graph) is None


def test_obstacle__follows_values_through_the_graph() -> None:
    """Not only a port itself: what is computed from it, too; its shape is a constant."""
    from dpfedge.compiler.nodes import Nodes
    from dpfedge.tensors import TensorSpec

    nodes = Nodes("through")
    nodes.add("Cast", ["x"], "whole", to=7)
    nodes.add("Neg", ["whole"], "less")
    nodes.add("ConstantOfShape", ["less"], "y")
    ports = [TensorSpec("x", "f32", (2,))], [TensorSpec("y", "f32", (2, 3))]
    assert obstacle(nodes.model(*ports).graph) == "ConstantOfShape reads a value of the request on the host"
    nodes = Nodes("shape")
    nodes.add("Shape", ["x"], "sizes")
    nodes.add("ConstantOfShape", ["sizes"], "y")
    assert obstacle(nodes.model([TensorSpec("x", "f32", (2, 3))], [TensorSpec("y", "f32", (2, 3))]).graph) is None


def test_mark__is_in_the_graphs_bytes() -> None:
    """Where loading looks for it."""
    model = affine(2)
    assert mark(model)[0].startswith("cuda_graph=where")
    assert MARK.encode() in model.SerializeToString()
    case = case_of("If-true/bool")
    branch = case.model(evaluate(case.model(), case.feeds))
    assert mark(branch) == ("cuda_graph=no", "If decides on the host")
    assert MARK.encode() not in branch.SerializeToString()
