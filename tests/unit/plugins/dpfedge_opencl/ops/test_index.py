# SPDX-License-Identifier: Apache-2.0
"""Reads and writes at places that are values, on this machine's device."""

from __future__ import annotations

import numpy as np
import pytest
from made_nodes import compare, graph_of, model, node, plan_of, port, run

X = np.random.default_rng(5).standard_normal((3, 5, 40)).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", ["i4", "i8"])
def test_gather__slices_in_any_order(axis: int, kind: str) -> None:
    """Negative indices count from the end."""
    made = model(
        [node("Gather", "x i", "y", axis=axis)], [port("x", [3, 5, 40]), port("i", [2, 2], kind)], [port("y", None)]
    )
    compare(made, x=X, i=np.array([[0, -1], [2, 0]], kind))


def test_gather__one_known_slice_is_a_view() -> None:
    """No launch."""
    nodes = [node("Exp", "x", "a"), node("Gather", "a i", "b", axis=0), node("MatMul", "b b", "y")]
    made = model(nodes, [port("x", [2, 4, 4])], [port("y", None)], {"i": np.array(1)})
    assert "rows" not in [one.kernel.entry for one in plan_of(graph_of(made), x=(2, 4, 4)).steps]
    compare(made, x=np.linspace(0, 1, 32, dtype=np.float32).reshape(2, 4, 4))


def test_gather__an_index_out_of_range_reads_no_other_memory() -> None:
    """It is brought into it."""
    made = model([node("Gather", "x i", "y")], [port("x", [3, 5, 40]), port("i", [2], "i8")], [port("y", None)])
    found = run(made, x=X, i=np.array([10**12, -(10**12)]))["y"]
    assert np.array_equal(found, X[[2, 0]])


def test_gather_elements__smaller_indices_than_data() -> None:
    """Along any axis."""
    for axis in (0, 1, 2):
        index = np.random.default_rng(axis).integers(-3, 3, (2, 4, 7))
        ports = [port("x", [3, 5, 40]), port("i", [2, 4, 7], "i8")]
        compare(model([node("GatherElements", "x i", "y", axis=axis)], ports, [port("y", None)]), x=X, i=index)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_gather_nd__tuples_of_any_width(width: int) -> None:
    """Slices behind them."""
    index = np.random.default_rng(width).integers(0, 3, (4, 2, width))
    ports = [port("x", [3, 5, 40]), port("i", [4, 2, width], "i8")]
    compare(model([node("GatherND", "x i", "y")], ports, [port("y", None)]), x=X, i=index)


def test_gather_nd__of_batches() -> None:
    """Each with tuples of its own."""
    index = np.array([[[4]], [[0]], [[2]]])
    ports = [port("x", [3, 5, 40]), port("i", [3, 1, 1], "i8")]
    compare(model([node("GatherND", "x i", "y", batch_dims=1)], ports, [port("y", None)]), x=X, i=index)


def test_scatter_nd__leaves_the_rest() -> None:
    """And the data itself."""
    nodes = [node("ScatterND", "x i u", "s"), node("Sub", "s x", "y")]
    ports = [port("x", [3, 5, 40]), port("i", [2, 2], "i8"), port("u", [2, 40])]
    compare(model(nodes, ports, [port("y", None)]), x=X, i=np.array([[0, 4], [2, 1]]), u=np.ones((2, 40), np.float32))


def test_scatter_elements__one_by_one() -> None:
    """Along an axis."""
    ports = [port("x", [3, 5, 40]), port("i", [1, 2, 3], "i8"), port("u", [1, 2, 3])]
    made = model([node("ScatterElements", "x i u", "y", axis=1)], ports, [port("y", None)])
    compare(made, x=X, i=np.array([[[0, 1, 2], [3, 4, 0]]]), u=np.arange(6, dtype=np.float32).reshape(1, 2, 3))
