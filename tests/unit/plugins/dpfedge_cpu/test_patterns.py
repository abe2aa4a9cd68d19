# SPDX-License-Identifier: Apache-2.0
"""What the optimiser made of a graph, in words."""

from __future__ import annotations

import onnx
from dpfedge_cpu.patterns import kernels
from onnx import helper


def graph(*ops: tuple[str, str]) -> onnx.ModelProto:
    """A model with nodes of these (domain, operator)."""
    nodes = [helper.make_node(op, ["x"], [f"y{index}"], domain=domain) for index, (domain, op) in enumerate(ops)]
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


MICROSOFT = "com.microsoft"


def test_kernels__attention_of_the_source() -> None:
    """An operator that was there is said to be the graph's own."""
    model = graph((MICROSOFT, "GroupQueryAttention"), (MICROSOFT, "GroupQueryAttention"), ("", "Add"))

    assert kernels(model, model) == [("attention=2×GroupQueryAttention", "the imported graph has it as one operator")]


def test_kernels__found_by_the_optimiser() -> None:
    """What is new is a pattern that was found, attention apart; branches count."""
    source = graph(("", "MatMul"), ("", "Softmax"), (MICROSOFT, "Gelu"))
    lowered = graph((MICROSOFT, "MultiHeadAttention"), (MICROSOFT, "Gelu"), (MICROSOFT, "FusedConv"))
    branch = graph((MICROSOFT, "FusedConv")).graph
    lowered.graph.node.append(helper.make_node("If", ["c"], ["z"], then_branch=branch))

    assert kernels(source, lowered) == [
        ("attention=1×MultiHeadAttention", "the optimiser put it together from its parts"),
        ("fused=2×FusedConv", "the optimiser found these patterns, each of which has one kernel"),
    ]
    assert kernels(graph(("", "Add")), graph(("", "Add"))) == []
