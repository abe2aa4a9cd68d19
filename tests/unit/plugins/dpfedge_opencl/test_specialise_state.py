# SPDX-License-Identifier: Apache-2.0
"""What one walk keeps for the next."""

from __future__ import annotations

import numpy as np
from dpfedge_opencl.plan import Launch
from dpfedge_opencl.specialise_state import Memo, constants_of
from made_nodes import FACTS, compare, graph_of, model, node, plan_of, port


def _made() -> object:
    nodes = [node("Exp", "x", "a"), node("MatMul", "z a", "b"), node("Relu", "z", "y")]
    return model(nodes, [port("x", [2, 2]), port("z", ["n", 2])], [port("b", ["n", 2]), port("y", ["n", 2])])


def test_memo__a_node_with_the_shapes_of_before_gives_the_same_launches() -> None:
    """The very same objects, so that what was made of them can be kept."""
    graph = graph_of(_made())  # type: ignore[arg-type]
    first, second = (plan_of(graph, x=(2, 2), z=(count, 2)) for count in (3, 4))
    steps = [[one for one in plan.steps if isinstance(one, Launch) and one.node == "a"] for plan in (first, second)]
    assert steps[0][0] is steps[1][0]
    assert first.steps[-1] is not second.steps[-1]


def test_memo__is_of_one_device() -> None:
    """Another's facts begin anew."""
    graph = graph_of(_made())  # type: ignore[arg-type]
    assert Memo.of(graph, FACTS) is Memo.of(graph, FACTS)
    constants_of(graph)
    assert Memo.of(graph, FACTS) is Memo.of(graph, FACTS)


def test_memo__forgets() -> None:
    """Many shapes, few records."""
    graph = graph_of(_made())  # type: ignore[arg-type]
    for count in range(1, 20):
        plan_of(graph, x=(2, 2), z=(count, 2))
    memo = Memo.of(graph, FACTS)
    assert max(len(records) for records in memo._records.values()) <= 4


def test_memo__contents_of_the_host_are_part_of_the_key() -> None:
    """A slice whose ends follow from another input's size."""
    nodes = [node("Shape", "z", "s"), node("Slice", "x zero s", "c"), node("Neg", "c", "y")]
    made = model(nodes, [port("x", [9]), port("z", ["n"])], [port("y", None)], {"zero": np.array([0])})
    for count in (3, 5, 3):
        compare(made, x=np.arange(9, dtype=np.float32), z=np.zeros(count, np.float32))
    graph = graph_of(made)
    assert [plan_of(graph, x=(9,), z=(count,)).shapes["y"] for count in (3, 5, 3)] == [(3,), (5,), (3,)]
