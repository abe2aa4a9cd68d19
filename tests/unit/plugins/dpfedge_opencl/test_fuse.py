# SPDX-License-Identifier: Apache-2.0
"""Neighbours in one kernel."""

from __future__ import annotations

import json

import numpy as np
from made_nodes import compare, graph_of, model, node, port


def _steps(made: object) -> list[list[str]]:
    graph = graph_of(made)  # type: ignore[arg-type]
    return [[step[0] for step in json.loads(one.attrs["chain"])[0]] for one in graph.nodes if one.op == "Chain"]


def test_fuse__a_row_of_elementwise_operators_is_one_chain() -> None:
    """With constants in its text."""
    nodes = [node("Div", "x two", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "y")]
    constants = {"two": np.array(2, np.float32), "one": np.array([1], np.float32)}
    made = model(nodes, [port("x", ["n", 5])], [port("y", ["n", 5])], constants)
    assert len(_steps(made)) == 1
    compare(made, x=np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5))


def test_fuse__what_is_heavy_is_not_computed_twice() -> None:
    """A small operand that is spread over a large one stays a kernel of its own; a sum and a root do not."""
    nodes = [node("Exp", "b", "e"), node("Mul", "x e", "y")]
    made = model(nodes, [port("x", ["n", 500]), port("b", [500])], [port("y", ["n", 500])])
    assert _steps(made) == [["Exp"], ["Mul"]]
    nodes = [node("Add", "b b", "s"), node("Sqrt", "s", "e"), node("Div", "x e", "y")]
    made = model(nodes, [port("x", ["n", 500]), port("b", ["n", 1])], [port("y", ["n", 500])])
    assert _steps(made) == [["Add", "Sqrt", "Div"]]
    compare(made, x=np.ones((3, 500), np.float32), b=np.array([[1], [2], [3]], np.float32))


def test_fuse__order_is_kept_where_another_kernel_stands_between() -> None:
    """What is read there must be there."""
    nodes = [node("Exp", "x", "e"), node("NonZero", "e", "p"), node("Log", "e", "y")]
    made = model(nodes, [port("x", ["n"])], [port("y", ["n"]), port("p", [1, "m"], "i8")])
    compare(made, x=np.array([0.5, 1, 2], np.float32))


def test_fuse__a_constant_that_gives_the_rank_stays() -> None:
    """[n] + [1,1] has two axes."""
    made = model(
        [node("Add", "x c", "y")], [port("x", ["n"])], [port("y", [1, "n"])], {"c": np.ones((1, 1), np.float32)}
    )
    compare(made, x=np.array([1, 2, 3], np.float32))


def test_fuse__limits_and_exponents_are_text() -> None:
    """Clip and Pow with constants."""
    constants = {"least": np.array(-1, np.float32), "most": np.array(1, np.float32), "two": np.array(2, np.float32)}
    nodes = [node("Clip", "x least most", "c"), node("Pow", "c two", "y")]
    made = model(nodes, [port("x", ["n"])], [port("y", ["n"])], constants)
    assert _steps(made) == [["Clip", "Pow"]]
    compare(made, x=np.linspace(-2, 2, 9, dtype=np.float32))


def test_fuse__sums_with_0_and_means_of_one_element_are_views() -> None:
    """Where sizes are fixed."""
    nodes = [node("Add", "x zero", "a"), node("Relu", "a", "b"), node("ReduceMean", "b axis", "y", keepdims=0)]
    constants = {"zero": np.zeros(1, np.float32), "axis": np.array([1])}
    made = model(nodes, [port("x", [4, 1])], [port("y", [4])], constants)
    assert [one.op for one in graph_of(made).nodes] == ["Identity", "Chain", "Reshape"]
    compare(made, x=np.array([[-1], [0], [1], [2]], np.float32))


def test_fuse__a_limit_may_be_an_operand_as_well() -> None:
    """One constant in two places, one of which is text."""
    nodes = [
        node("Clip", "x least", "c"),
        node("Sub", "c least", "d"),
        node("Pow", "d two", "p"),
        node("Mul", "p two", "y"),
    ]
    constants = {"least": np.array(-1, np.float32), "two": np.array(2, np.float32)}
    compare(model(nodes, [port("x", ["n"])], [port("y", ["n"])], constants), x=np.linspace(-2, 2, 9, dtype=np.float32))
