# SPDX-License-Identifier: Apache-2.0
"""Which launches become one, which stay by themselves, and that a plan means the same then."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
from dpfedge_opencl import joining
from dpfedge_opencl.joined import STATE
from dpfedge_opencl.joining import Joiner
from dpfedge_opencl.plan import CpuCall, Kernel, Launch, Plan, Slot, Tensor
from made_nodes import FACTS, compare, model, node, port

SOURCE = "__kernel void k%d(__global uchar *a, const ulong ao) {}"


def _launch(kind: int = 0, work: int = 1, name: str = "x", local: tuple[int, ...] | None = (1,)) -> Launch:
    return Launch(Kernel(f"k{kind}", SOURCE % kind), (Tensor(name),), (1,), local, f"n{kind}", work)


def _plan(*steps: Launch | CpuCall, **more: object) -> Plan:
    slots = {name: Slot("arena", 64 * at, "f32", (4,)) for at, name in enumerate("xyz")}
    slots["big"] = Slot("arena", 4096, "f32", (1 << 27,))
    slots["weight"] = Slot("weight", 0, "f32", (1 << 22,), "w")
    return Plan(steps, slots, 1 << 25, {}, **more)  # type: ignore[arg-type]


def _nodes(plan: Plan) -> list[str]:
    return [step.node if isinstance(step, Launch) else "cpu" for step in plan.steps]


def test_plan__launches_in_a_row_are_one() -> None:
    """Between two of the CPU's calls, and between those that are large by what they say or touch."""
    large, touching = _launch(2, work=1 << 27), _launch(3, work=0, name="big")
    steps = (_launch(0), _launch(1), CpuCall(0, ("x",), ("y",)), _launch(0), large, _launch(1), _launch(0), touching)
    made = Joiner(FACTS).plan(_plan(*steps))
    assert _nodes(made) == ["n0 … n1", "cpu", "n0", "n2", "n1 … n0", "n3"]


def test_plan__tables_of_weights_are_not_walked() -> None:
    """A row of an embedding is small however many rows there are."""
    assert _nodes(Joiner(FACTS).plan(_plan(_launch(0), _launch(1, work=0, name="weight")))) == ["n0 … n1"]


def test_plan__work_groups_and_devices_that_have_them_stay_as_they_are() -> None:
    """One item is one thread on a CPU only."""
    plan = _plan(_launch(0, local=(64,)), _launch(1, local=None))
    assert Joiner(FACTS).plan(plan).steps == plan.steps
    plan = _plan(_launch(0), _launch(1))
    assert Joiner(dataclasses.replace(FACTS, cpu=False)).plan(plan) is plan


def test_plan__a_launch_ends_where_a_run_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds about a millisecond of work."""
    monkeypatch.setattr(joining, "_MOST", 3)
    assert _nodes(Joiner(FACTS).plan(_plan(*(_launch(kind) for kind in range(5))))) == ["n0 … n2", "n3 … n4"]


def test_plan__a_launch_names_as_much_memory_as_a_kernel_may_have() -> None:
    """More begin the next one."""
    slots = {f"i{at}": Slot("input", 0, "f32", (4,), f"i{at}") for at in range(70)}
    plan = Plan(tuple(_launch(0, name=name) for name in slots), slots, 0, {})
    first, second = Joiner(FACTS).plan(plan).steps
    assert isinstance(first, Launch)
    assert isinstance(second, Launch)
    assert [int(one.args[2]) for one in (first, second)] == [60, 10]  # type: ignore[arg-type]


def test_plan__items_are_shared_as_far_as_there_is_work() -> None:
    """A launch's tickets hold some microseconds each, and are not endless; a short list needs no second group."""
    long = dataclasses.replace(_launch(0, work=1 << 21), global_size=(10, 10), local_size=(1, 1))
    made = Joiner(FACTS).plan(_plan(long, _launch(1)))
    (step,) = made.steps
    assert isinstance(step, Launch)
    assert step.global_size == (2 * FACTS.compute_units,)
    table = np.frombuffer(made.data, np.uint32)[STATE:]
    assert table[5:7].tolist() == [0, 4]  # 32 tickets of 100 items at most
    assert table[int(table[1]) + 5 :][:2].tolist() == [25, 1]
    made = Joiner(FACTS).plan(_plan(dataclasses.replace(long, work=1 << 16), _launch(1)))
    (step,) = made.steps
    assert isinstance(step, Launch)
    assert step.global_size == (1,)
    assert np.frombuffer(made.data, np.uint32)[STATE:][5:7].tolist() == [0, 13]  # 2^16 / 2^13 tickets of 100 items


def test_plan__the_table_stands_behind_the_data() -> None:
    """What is written late keeps its place."""
    made = Joiner(FACTS).plan(_plan(_launch(0), _launch(1, name="y"), data=b"12345"))
    slot = made.slots["joined#table"]
    assert (slot.home, slot.offset, made.data[:5]) == ("plan", 64, b"12345")
    table = np.frombuffer(made.data[64:], np.uint32)[STATE:]
    assert table[[1, 11]].tolist() == [10, 10]
    assert table[[7, 8, 17, 18]].tolist() == [0, 0, 0, 64]


def test_plan__a_program_serves_every_plan_that_has_its_kernels() -> None:
    """One that lacks few of them, too: those are launched by themselves. Texts of a seal are used like its own."""
    joiner = Joiner(FACTS)
    joiner.plan(_plan(*(_launch(kind) for kind in range(4))))
    joiner.plan(_plan(_launch(3), _launch(1)))
    assert len(joiner.texts) == 1
    again = Joiner(FACTS, joiner.texts)
    made = again.plan(_plan(_launch(0), _launch(1), _launch(9), _launch(2), _launch(3)))
    assert again.texts == joiner.texts
    assert _nodes(made) == ["n0 … n1", "n9", "n2 … n3"]
    again.plan(_plan(_launch(7), _launch(8)))
    assert len(again.texts) == 2


def test_plan__stretches_that_follow_have_tables_of_their_own() -> None:
    """Each lies in the data of its stretch."""

    class Then:
        values = ("x",)

        def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: object) -> Plan:
            return _plan(_launch(0), _launch(1))

    made = Joiner(FACTS).plan(_plan(_launch(0), _launch(1), then=Then()))
    assert made.then is not None
    assert made.then.values == ("x",)
    following = made.then({}, {})
    assert [one.slots["joined#table"].stretch for one in (made, following)] == [0, 1]


def test_run__a_graph_of_many_kernels_gives_the_reference_s_answers() -> None:
    """Sums, moves, norms and products in one program, on this machine's device."""
    random = np.random.default_rng(3)
    nodes = [
        node("MatMul", "x w", "a"), node("Transpose", "a", "b", perm=[1, 0]), node("Softmax", "b", "c"),
        node("LayerNormalization", "c s", "d"), node("ReduceMean", "d", "e", keepdims=1), node("Sub", "d e", "y"),
    ]  # fmt: skip
    constants = {"w": random.standard_normal((24, 12)).astype("f4"), "s": np.ones(5, "f4")}
    made = model(nodes, [port("x", [5, 24])], [port("y", [12, 5])], constants)
    compare(made, x=random.standard_normal((5, 24)).astype("f4"))
