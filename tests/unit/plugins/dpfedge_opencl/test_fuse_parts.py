# SPDX-License-Identifier: Apache-2.0
"""Parts that a chain reads where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from made_nodes import compare, graph_of, model, node, plan_of, port

X = np.random.default_rng(4).standard_normal((2, 3, 84)).astype(np.float32)


@pytest.mark.parametrize("split", [{"num_outputs": 2}, {}])
def test_read_parts__a_gate_and_its_value_need_no_split(split: dict[str, int]) -> None:
    """Rows of both kinds: along all of them, and alone."""
    sizes = {} if split else {"sizes": np.array([42, 42])}
    nodes = [
        node("Neg", "x", "a"), node("Split", "a sizes" if sizes else "a", "g v", axis=-1, **split),
        node("ms:QuickGelu", "g", "q", alpha=1.0), node("Mul", "q v", "y"),
    ]  # fmt: skip
    made = model(nodes, [port("x", ["b", "n", 84])], [port("y", ["b", "n", 42])], sizes)
    graph = graph_of(made)
    assert [one.op for one in graph.nodes] == ["Chain", "Chain"]
    assert len(plan_of(graph, x=(2, 3, 84)).steps) == 2
    compare(made, x=X)
    compare(made, x=X[:1, :1].copy())


def test_read_parts__with_other_operands_that_are_spread() -> None:
    """Their steps are those of the result."""
    nodes = [node("Exp", "x", "a"), node("Split", "a", "g v", axis=2, num_outputs=2), node("Mul", "g b", "p"),
             node("Add", "p v", "q"), node("Mul", "q c", "y")]  # fmt: skip
    made = model(nodes, [port("x", ["b", "n", 84]), port("b", [42]), port("c", ["n", 1])], [port("y", ["b", "n", 42])])
    assert [one.op for one in graph_of(made).nodes] == ["Chain", "Chain"]
    compare(made, 1e-4, x=X, b=np.arange(42, dtype=np.float32), c=np.array([[1], [2], [3]], np.float32))


def test_read_parts__a_part_that_another_kernel_reads_stays() -> None:
    """So does one along another axis."""
    nodes = [node("Exp", "x", "a"), node("Split", "a", "g v", axis=-1, num_outputs=2), node("Neg", "g", "y"),
             node("MatMul", "v w", "z")]  # fmt: skip
    ports = [port("y", ["b", "n", 42]), port("z", ["b", "n", 42])]
    made = model(nodes, [port("x", ["b", "n", 84])], ports, {"w": np.eye(42, dtype=np.float32)})
    assert "Split" in [one.op for one in graph_of(made).nodes]
    nodes = [node("Exp", "x", "a"), node("Split", "a", "g v", axis=0, num_outputs=2), node("Mul", "g v", "y")]
    made = model(nodes, [port("x", [2, 3, 84])], [port("y", [1, 3, 84])])
    assert "Split" in [one.op for one in graph_of(made).nodes]
    compare(made, x=X)


def test_read_parts__of_an_input_of_the_graph() -> None:
    """It lies in the caller's memory."""
    nodes = [node("Split", "x", "g v", axis=-1, num_outputs=2), node("Mul", "g v", "y")]
    compare(model(nodes, [port("x", ["b", "n", 84])], [port("y", ["b", "n", 42])]), x=X)


def test_read_parts__heads_of_several_projections_are_moved_once() -> None:
    """Queries, keys and values of one product."""
    nodes = [node("Exp", "x", "a"), node("Split", "a", "q k v", axis=-1, num_outputs=3)]
    for name in "qkv":
        nodes += [
            node("Reshape", f"{name} sizes", f"{name}h"),
            node("Transpose", f"{name}h", f"{name}t", perm=[0, 2, 1, 3]),
        ]
    ports = [port(f"{name}t", [2, 4, "n", 7]) for name in "qkv"]
    made = model(nodes, [port("x", [2, "n", 84])], ports, {"sizes": np.array([0, 0, 4, 7])})
    graph = graph_of(made)
    assert [one.op for one in graph.nodes] == ["Chain", "Heads", "Heads", "Heads"]
    assert len(plan_of(graph, x=(2, 3, 84)).steps) == 4
    compare(made, x=X)
    compare(made, x=X[:, :1].copy())
