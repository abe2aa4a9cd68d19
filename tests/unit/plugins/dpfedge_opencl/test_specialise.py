# SPDX-License-Identifier: Apache-2.0
"""Graphs made concrete: steps, places, and where a plan ends."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from dpfedge_opencl.plan import CpuCall, Launch
from made_nodes import compare, graph_of, lowered, model, node, plan_of, port, run

from dpfedge.errors import BackendError


def _data_dependent() -> onnx.ModelProto:
    nodes = [
        node("Add", "x x", "twice"),
        node("NonZero", "twice", "places"),
        node("Cast", "places", "floats", to=1),
        node("Mul", "floats half", "halves"),
        node("Sub", "halves floats", "y"),
        node("Exp", "x", "e"),
    ]
    half = {"half": np.array(0.5, np.float32)}
    return model(nodes, [port("x", ["n"])], [port("y", [1, "m"]), port("e", ["n"])], half)


def test_specialise__outputs_are_the_callers_memory() -> None:
    """And inputs are read where they lie."""
    plan = plan_of(graph_of(model([node("Relu", "x", "y")], [port("x", ["n"])], [port("y", ["n"])])), x=(5,))
    assert (plan.slots["x"].home, plan.slots["x"].of) == ("input", "x")
    assert (plan.slots["y"].home, plan.slots["y"].of) == ("output", "y")
    assert plan.arena_bytes == 0
    assert plan.shapes == {"y": (5,)}


def test_specialise__a_plan_ends_where_only_a_run_tells_the_size() -> None:
    """The next stretch is made with it."""
    plan = plan_of(graph_of(_data_dependent()), x=(4,))
    call = plan.steps[-1]
    assert isinstance(call, CpuCall)
    assert plan.then is not None
    assert all(name not in plan.slots for name in call.outputs)
    assert plan.shapes.get("y") is None
    following = plan.then(dict.fromkeys(call.outputs, (1, 3)), {})
    assert following.shapes["y"] == (1, 3)
    assert {slot.home for slot in following.slots.values()} >= {"cpu", "output"}


def test_specialise__such_a_graph_is_right_for_every_size() -> None:
    """On this machine's device, sizes up and down."""
    made = _data_dependent()
    for count in (4, 1, 6, 4):
        x = np.arange(count, dtype=np.float32) % 3
        found = run(made, x=x)
        places = np.flatnonzero(x)[None].astype(np.float32)
        np.testing.assert_allclose(found["y"], -places / 2)
        np.testing.assert_allclose(found["e"], np.exp(x), rtol=1e-6)


def test_specialise__what_the_host_knows_lies_in_the_plan() -> None:
    """Sizes that a kernel reads as values."""
    nodes = [node("Shape", "x", "s"), node("Cast", "s", "f", to=1), node("Mul", "f y", "z")]
    made = model(nodes, [port("x", ["n", 3]), port("y", [2])], [port("z", [2])])
    plan = plan_of(graph_of(made), x=(5, 3), y=(2,))
    slot = plan.slots["f"]
    assert slot.home == "plan"
    assert plan.late is not None
    ((offset, data),) = plan.late({"x": (7, 3), "y": (2,)})
    assert offset == slot.offset
    assert np.frombuffer(data, np.float32).tolist() == [7, 3]
    compare(made, x=np.zeros((5, 3), np.float32), y=np.array([1, 2], np.float32))


def test_specialise__an_output_that_is_a_port_twice_is_copied() -> None:
    """And one that the host alone knows."""
    nodes = [node("Relu", "x", "y"), node("Identity", "y", "z"), node("Shape", "x", "s")]
    made = model(nodes, [port("x", ["n"])], [port("y", ["n"]), port("z", ["n"]), port("s", [1], "i8")])
    plan = plan_of(graph_of(made), x=(3,))
    assert {plan.slots[name].home for name in ("y", "z", "s")} == {"output"}
    compare(made, x=np.array([-1, 0, 2], np.float32))


def test_specialise__an_output_over_an_input_that_is_read_again_waits() -> None:
    """The caller bound both to one memory; the kernels do not know of it."""
    nodes = [node("Add", "x x", "y"), node("MatMul", "x w", "z")]
    made = model(nodes, [port("x", [2, 2])], [port("y", [2, 2]), port("z", [2, 2])], {"w": np.eye(2, dtype=np.float32)})
    apart = plan_of(graph_of(made), x=(2, 2))
    over = plan_of(graph_of(made), ("y", "x"), x=(2, 2))
    assert len(over.steps) == len(apart.steps) + 1
    last = over.steps[-1]
    assert isinstance(last, Launch)
    assert last.kernel.entry == "copy"


def test_specialise__shapes_that_do_not_fit_name_the_node() -> None:
    """Not a crash behind it."""
    graph = graph_of(model([node("Add", "a b", "y")], [port("a", ["n"]), port("b", ["m"])], [port("y", None)]))
    with pytest.raises(BackendError, match="made: Chain y"):
        plan_of(graph, a=(2,), b=(3,))


def test_lower__gives_the_same_bytes() -> None:
    """Of the same request."""
    assert lowered(_data_dependent()).code == lowered(_data_dependent()).code


def test_specialise__an_operator_of_a_later_plugin_is_named() -> None:
    """With what to do."""
    graph = graph_of(model([node("Relu", "x", "y")], [port("x", ["n"])], [port("y", ["n"])]))
    graph.nodes[0].op = "Unheard"
    with pytest.raises(BackendError, match=r"lacks an operator.*Unheard.*install"):
        plan_of(graph, x=(2,))


def test_specialise__sizes_that_come_late_reach_the_second_stretch() -> None:
    """Its plan is kept as well, and read with the sizes of this run."""
    nodes = [
        node("Shape", "mask", "s"), node("Cast", "s", "f", to=1), node("NonZero", "x", "p"),
        node("Cast", "p", "q", to=1), node("MatMul", "q w", "r"), node("Mul", "r f", "y"),
    ]  # fmt: skip
    made = model(nodes, [port("x", [2]), port("mask", ["t"])], [port("y", None)], {"w": np.eye(2, dtype=np.float32)})
    graph = graph_of(made)
    assert graph.late == {"mask"}
    following = plan_of(graph, x=(2,), mask=(3,))
    assert following.then is not None
    following = following.then(dict.fromkeys(following.steps[-1].outputs, (1, 2)), {})  # type: ignore[union-attr]
    assert following.late is not None
    ((_, data),) = following.late({"x": (2,), "mask": (9,)})
    assert np.frombuffer(data, np.float32).tolist() == [9]
    for count in (3, 9, 3):
        compare(made, x=np.ones(2, np.float32), mask=np.zeros(count, np.float32))


def test_specialise__a_board_needs_no_onnx() -> None:
    """What reads graphs and plans them imports neither the compiler's libraries nor a driver's."""
    lines = "import sys, dpfedge_opencl.graph, dpfedge_opencl.specialise; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True).stdout.split()
    assert not {"onnx", "onnxruntime", "pyopencl", "dpfedge_cpu"} & set(found)
