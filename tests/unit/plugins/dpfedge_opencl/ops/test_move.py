# SPDX-License-Identifier: Apache-2.0
"""Order and extent of values, on this machine's device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dpfedge_opencl.plan import Launch
from made_nodes import Array, as_gpu, compare, graph_of, model, node, plan_of, port, run


def _check(op: str, x: Array, constants: dict[str, Array], **attrs: Any) -> None:
    """One operator between two others, so that views are views of something computed."""
    inputs = " ".join(["a", *constants])
    nodes = [node("Neg", "x", "a"), node(op, inputs, "b", **attrs), node("Abs", "b", "y")]
    made = model(nodes, [port("x", list(x.shape))], [port("y", None)], constants)
    compare(made, x=x)


X = np.arange(2 * 3 * 40, dtype=np.float32).reshape(2, 3, 40)


@pytest.mark.parametrize("perm", [[0, 1, 2], [2, 0, 1], [0, 2, 1], [1, 0, 2], None])
def test_transpose__any_order(perm: list[int] | None) -> None:
    """The default is the reverse."""
    _check("Transpose", X, {}, **({} if perm is None else {"perm": perm}))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [([1], [2], [0], [1]), ([0, 5], [3, 37], [1, 2], [1, 2]), ([-1], [-100], [2], [-3]), ([1], [2**62], [-1], [1])],
)
def test_slice__forwards_and_backwards(starts: list[int], ends: list[int], axes: list[int], steps: list[int]) -> None:
    """Views where the part lies in one piece."""
    parts = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    _check("Slice", X, {name: np.array(values) for name, values in parts.items()})


def test_slice__of_the_outermost_axis_is_a_view() -> None:
    """No launch."""
    constants = {"starts": np.array([1]), "ends": np.array([2])}
    nodes = [node("Exp", "x", "a"), node("Slice", "a starts ends", "b"), node("MatMul", "b b", "y")]
    made = model(nodes, [port("x", [2, 3, 3])], [port("y", None)], constants)
    plan = plan_of(graph_of(made), x=(2, 3, 3))
    assert [one.kernel.entry for one in plan.steps if isinstance(one, Launch)].count("move") == 0


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_split_and_concat__are_each_others_inverse(axis: int) -> None:
    """Uneven parts."""
    size = X.shape[axis]
    nodes = [
        node("Neg", "x", "a"), node("Split", "a sizes", "b c", axis=axis), node("Concat", "c b", "d", axis=axis),
        node("Abs", "d", "y"),
    ]  # fmt: skip
    made = model(nodes, [port("x", [2, 3, 40])], [port("y", None)], {"sizes": np.array([1, size - 1])})
    compare(made, x=X)


def test_split__into_equal_parts() -> None:
    """Operator set 18's `num_outputs`."""
    nodes = [node("Split", "x", "a b c", axis=2, num_outputs=3), node("Concat", "c a b", "y", axis=0)]
    compare(model(nodes, [port("x", [2, 3, 39])], [port("y", None)]), x=X[:, :, :39].copy())


def test_expand_and_tile__repeat() -> None:
    """Along new and old axes."""
    _check("Expand", X[:, :1], {"shape": np.array([4, 1, 3, 1])})
    _check("Tile", X, {"times": np.array([2, 1, 3])})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_pad__every_mode(mode: str) -> None:
    """Both sides of two axes."""
    pads = [0, 1, 3, 0, 2, 2] if mode != "constant" else [0, 1, 0, 1, 2, 2]
    constants = {"pads": np.array(pads)} | ({"value": np.array(7, np.float32)} if mode == "constant" else {})
    _check("Pad", X, constants, mode=mode)


def test_pad__negative_pads_cut() -> None:
    """On either side, also where the other one grows."""
    made = model(
        [node("Pad", "x pads", "y")], [port("x", [2, 5])], [port("y", None)], {"pads": np.array([1, -2, 0, 1])}
    )
    x = np.arange(1, 11, dtype=np.float32).reshape(2, 5)
    assert np.array_equal(run(made, x=x)["y"], np.pad(x[:, 2:], ((1, 0), (0, 1))))


def test_range_and_constant_of_shape__follow_from_sizes() -> None:
    """The host writes them; kernels read them."""
    nodes = [
        node("Shape", "x", "s"), node("Size", "x", "n"), node("Range", "zero n one", "r"), node("Cast", "r", "f", to=1),
        node("Reshape", "f s", "g"), node("ConstantOfShape", "s", "c"), node("Add", "g c", "h"),
        node("Add", "h x", "y"),
    ]  # fmt: skip
    made = model(nodes, [port("x", ["a", "b"])], [port("y", ["a", "b"])], {"zero": np.array(0), "one": np.array(1)})
    compare(made, x=np.ones((3, 5), np.float32))
    compare(made, x=np.ones((2, 2), np.float32))


def test_concat__inputs_are_written_where_they_belong() -> None:
    """No launch, where the parts lie in one piece; an input that stands twice is copied once."""
    nodes = [node("Exp", "x", "a"), node("Concat", "a x a", "y", axis=1)]
    made = model(nodes, [port("x", [1, 3])], [port("y", [1, 9])])
    entries = [one.kernel.entry for one in plan_of(graph_of(made), x=(1, 3)).steps if isinstance(one, Launch)]
    assert entries == ["chain", "move", "move"]
    compare(made, x=np.array([[0, 1, 2]], np.float32))


def test_moves__as_a_gpu_runs_them() -> None:
    """Small items, many of them."""
    with as_gpu():
        _check("Transpose", X, {}, perm=[2, 0, 1])
        _check("Pad", X, {"pads": np.array([0, 1, 3, 0, 2, 2])}, mode="reflect")
        _check("Pad", X, {"pads": np.array([0, 1, 3, 0, 2, 2])})
        _check("Gather", X, {"at": np.array([2, 0])}, axis=1)
        _check("Expand", X[:, :1], {"shape": np.array([4, 1, 3, 1])})
