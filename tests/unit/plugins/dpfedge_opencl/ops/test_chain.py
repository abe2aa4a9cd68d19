# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators with broadcasting in one kernel."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from dpfedge_opencl.ops.chain import broadcast, collapse
from dpfedge_opencl.plan import Launch
from made_nodes import FACTS, as_gpu, compare, graph_of, model, node, plan_of, port, run

SHAPES = [((5, 7), (5, 7)), ((3, 40), (40,)), ((3, 40), (3, 1)), ((2, 3, 4, 50), (3, 1, 1)), ((2, 1, 5), (4, 1)),
          ((), (3,)),
          ((2, 3, 4, 5), (2, 1, 4, 1)), ((1, 64), (1, 64)), ((7, 1, 33), (1, 6, 33))]  # fmt: skip


def test_collapse__merges_neighbours_that_every_operand_treats_alike() -> None:
    """Channels over a plane: one outer axis, one value along the inner one."""
    rows, inner, strides, vectors = collapse((1, 8, 5, 6), ((1, 8, 5, 6), (8, 1, 1)))
    assert (rows, inner) == ((8,), 30)
    assert strides == ((30,), (1,))
    assert vectors == (True, False)


def test_collapse__of_one_element() -> None:
    """No axis is left."""
    assert collapse((1, 1), ((1, 1), ())) == ((), 1, ((), ()), (True, True))


def test_broadcast__refuses_what_does_not_fit() -> None:
    """As NumPy does."""
    assert broadcast([(2, 1), (3,)]) == (2, 3)
    with pytest.raises(ValueError, match="shape"):
        broadcast([(2,), (3,)])


@pytest.mark.parametrize("pair", SHAPES, ids=str)
def test_chain__broadcasts(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Every pattern of the axes, vectors and their ends."""
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in pair)
    nodes = [node("Mul", "a b", "p"), node("Sub", "p a", "y")]
    compare(model(nodes, [port("a", a.shape), port("b", b.shape)], [port("y", np.broadcast_shapes(*pair))]), a=a, b=b)


def test_chain__of_several_outputs_is_one_launch() -> None:
    """What others read, too, is stored on the way."""
    nodes = [node("Add", "a b", "s"), node("Sigmoid", "s", "g"), node("Mul", "s g", "y")]
    made = model(nodes, [port("a", ["n", 8]), port("b", ["n", 8])], [port("s", ["n", 8]), port("y", ["n", 8])])
    assert len(plan_of(graph_of(made), a=(3, 8), b=(3, 8)).steps) == 1
    random = np.random.default_rng(2)
    compare(made, a=random.standard_normal((3, 8)).astype("f4"), b=random.standard_normal((3, 8)).astype("f4"))


def test_chain__of_integers_and_bools() -> None:
    """Without vectors."""
    nodes = [node("Less", "a b", "l"), node("Not", "l", "n"), node("Where", "n a b", "m"), node("Cast", "m", "y", to=1)]
    made = model(nodes, [port("a", [9], "i8"), port("b", [9], "i8")], [port("y", [9]), port("n", [9], "?")])
    compare(made, a=np.arange(9), b=np.full(9, 4))


def test_chain__functions_are_as_exact_as_float() -> None:
    """Those that are written out here: erf, tanh, sigmoid."""
    x = np.linspace(-12, 12, 1001, dtype=np.float32)
    for op in ("Erf", "Tanh", "Sigmoid", "ms:Gelu", "Softplus"):
        compare(model([node(op, "x", "y")], [port("x", [1001])], [port("y", [1001])]), 2e-6, x=x)


def test_chain__of_nothing_is_no_launch() -> None:
    """Empty tensors."""
    made = model([node("Relu", "x", "y")], [port("x", ["n"])], [port("y", ["n"])])
    assert plan_of(graph_of(made), x=(0,)).steps == ()
    assert run(made, x=np.zeros(0, np.float32))["y"].shape == (0,)


@pytest.mark.parametrize("cpu", [True, False])
def test_chain__items_cover_everything(cpu: bool) -> None:
    """One item for each vector on a GPU, few large ones on a CPU."""
    made = model([node("Add", "a b", "y")], [port("a", ["r", 100]), port("b", [100])], [port("y", ["r", 100])])
    plan = plan_of(graph_of(made), facts=dataclasses.replace(FACTS, cpu=cpu), a=(600, 100), b=(100,))
    step = plan.steps[0]
    assert isinstance(step, Launch)
    rows, inner, group, columns = (int(np.asarray(one)) for one in step.args[3:7])
    assert (rows, inner) == (600, 100)
    assert step.global_size[0] * columns >= inner
    assert step.global_size[1] * group >= rows
    assert (step.global_size[1] == 600) is not cpu


def test_chain__as_a_gpu_runs_it() -> None:
    """One item for each vector of each row, and its end."""
    random = np.random.default_rng(3)
    with as_gpu():
        for shape in ((5,), (3, 7), (2, 3, 18)):
            x = random.standard_normal(shape).astype(np.float32)
            nodes = [node("Mul", "x b", "p"), node("Tanh", "p", "y")]
            made = model(nodes, [port("x", shape), port("b", shape[-1:])], [port("y", shape)])
            compare(made, x=x, b=x.reshape(-1)[: shape[-1]].copy())
