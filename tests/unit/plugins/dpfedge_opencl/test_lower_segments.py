# SPDX-License-Identifier: Apache-2.0
"""Parts that the CPU plugin runs."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.graph import SEGMENT
from made_nodes import compare, graph_of, model, node, plan_of, port


def test_segment__holds_its_nodes_and_the_reason() -> None:
    """For `bind --explain`."""
    nodes = [
        node("NonZero", "x", "p"),
        node("Shape", "p", "s"),
        node("Reshape", "p s", "r"),
        node("Transpose", "r", "y"),
    ]
    graph = graph_of(model(nodes, [port("x", ["n"])], [port("y", ["m", 1], "i8")]))
    assert graph.segments[0].reason.startswith("NonZero: no kernel")
    assert graph.segments[0].nodes[0] == "NonZero p"


def test_segment__host_nodes_inside_run_inside() -> None:
    """A part that asks for the sizes of its own values stays in one piece."""
    nodes = [
        node("NonZero", "x", "p"), node("Shape", "p", "s"), node("Gather", "s one", "count"),
        node("Range", "zero count one", "r"), node("NonZero", "r", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array(0), "one": np.array(1)}
    made = model(nodes, [port("x", ["n"])], [port("y", [1, "m"], "i8")], constants)
    graph = graph_of(made)
    assert sum(one.op == SEGMENT for one in graph.nodes) <= 2
    compare(made, x=np.array([0, 1, 2, 0, 4], np.float32))


def test_segment__sizes_that_follow_from_shapes_do_not_end_the_plan() -> None:
    """Doubles have no kernels here, but their shapes are known."""
    nodes = [node("Cast", "x", "d", to=11), node("Exp", "d", "e"), node("Cast", "e", "f", to=1), node("Neg", "f", "y")]
    made = model(nodes, [port("x", ["n"])], [port("y", ["n"])])
    plan = plan_of(graph_of(made), x=(3,))
    assert plan.then is None
    compare(made, x=np.array([0, 1, 2], np.float32))
