# SPDX-License-Identifier: Apache-2.0
"""Runs on a fake DLA, which doubles: memory in place, copies counted, links, and what the caller does wrong."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import onnx
import pytest
from dpfedge_cpu.placed import Hold
from dpfedge_jetson.engine import build, open_engine
from dpfedge_jetson.executable import DlaExecutable
from onnx import helper

from dpfedge.backend.api import Array, GraphView
from dpfedge.backend.onnx_graph import graph_ports
from dpfedge.errors import BackendError

Network = Callable[..., onnx.ModelProto]
SHAPE = (1, 16, 2, 2)


class _Same:
    def at(self, address: int) -> int:
        """CPU and DLA have one address for it."""
        return address


@dataclass
class FakeMemory:
    """Reaches mappings only, as pinning does."""

    kind: str = "cuda"
    number: int = 0
    reaches: bool = True

    def hold(self, array: Array) -> Hold | None:
        """A way to mapped memory, none to the heap's."""
        one: object = array
        while one is not None:
            if isinstance(one, mmap.mmap):
                return _Same() if self.reaches else None
            one = one.obj if isinstance(one, memoryview) else getattr(one, "base", None)
        return None

    def wait(self) -> None:
        """Nothing is left to wait for."""


def mapped(value: float = 0.0) -> Array:
    """An array of pages of its own, as a link's arena has."""
    array = np.frombuffer(mmap.mmap(-1, 4096), np.float32, 64).reshape(SHAPE)
    array[...] = value
    return array


@pytest.fixture
def executable(fake_tensorrt: ModuleType, network: Network) -> DlaExecutable:
    """A loaded graph; `waits` counts."""
    model = network(helper.make_node("Relu", ["x"], ["y"]), shape=SHAPE)
    del model.graph.initializer[:]
    inputs, outputs = graph_ports(model)
    graph = GraphView("g", memoryview(model.SerializeToString()), inputs, outputs, {})
    engine = open_engine(memoryview(build(graph, 0)), 0, "graph g")
    return DlaExecutable(graph, engine, FakeMemory(), 7, lambda: None)


def test_run__in_place(executable: DlaExecutable) -> None:
    """Mapped memory is read and written where it lies, and new bytes are seen without binding again."""
    call, x, y = executable.bind(), mapped(3), mapped(np.nan)
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    assert (float(y[0, 0, 0, 0]), call.copies, call.output("y") is y) == (6.0, 0, True)
    x[...] = 5
    call.run()
    assert (np.unique(y).tolist(), call.copies) == ([10.0], 0)


def test_run__with_memory_of_the_heap_is_counted(executable: DlaExecutable) -> None:
    """One copy in, one out, for each run."""
    call, x, y = executable.bind(), np.full(SHAPE, 2, np.float32), np.full(SHAPE, np.nan, np.float32)
    call.set_input("x", x)
    call.set_output("y", y)
    for runs in (1, 2):
        call.run()
        assert (np.unique(y).tolist(), call.copies) == ([4.0], 2 * runs)
    call.set_output("y", None)
    call.run()
    assert (np.unique(call.output("y")).tolist(), call.copies) == ([4.0], 5)


@pytest.mark.parametrize("fixed", [False, True])
def test_link__stays_where_it_is(executable: DlaExecutable, fixed: bool) -> None:
    """Each run reads what the last one wrote; setting the input again starts anew."""
    call, y = executable.bind(), mapped(np.nan)
    if fixed:
        call.set_output("y", y)
    call.link("y", "x")
    for start in (1.0, 3.0):
        call.set_input("x", mapped(start))
        for times in (2, 4, 8, 16):
            call.run()
            assert np.unique(call.output("y")).tolist() == [start * times]
    assert call.copies == 0


def test_run__of_new_arrays(executable: DlaExecutable) -> None:
    """A plain run."""
    assert np.unique(executable.run({"x": np.ones(SHAPE, np.float32)})["y"]).tolist() == [2.0]


def test_bindings__keep_apart(executable: DlaExecutable) -> None:
    """Each has memory of its own."""
    calls = [executable.bind() for _ in range(2)]
    for value, call in enumerate(calls, 1):
        call.set_input("x", np.full(SHAPE, value, np.float32))
    for call in calls:
        call.run()
    assert [float(call.output("y").max()) for call in calls] == [2.0, 4.0]


def test_errors__name_the_graph(executable: DlaExecutable) -> None:
    """And the executable goes on working."""
    call, x, fixed = executable.bind(), np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    fixed.flags.writeable = False
    wrong: list[Callable[[], object]] = [
        lambda: call.set_input("x", x.astype(np.float64)),
        lambda: call.set_input("x", np.ones((2, *SHAPE[1:]), np.float32)),
        lambda: call.set_input("x", np.ones((1, 16, 2, 4), np.float32)[..., ::2]),
        lambda: call.set_input("q", x),
        lambda: call.set_output("q", x),
        lambda: call.set_output("y", fixed),
        lambda: call.set_output("q", None),
        lambda: call.link("y", "q"),
        lambda: call.run(),
        lambda: call.output("y"),
        lambda: call.output("q"),
        lambda: executable.run({}),
    ]
    for act in wrong:
        with pytest.raises(BackendError, match="graph g"):
            act()
    assert executable.run({"x": x})["y"].max() == 2.0


def test_run__that_tensorrt_refuses(executable: DlaExecutable, fake_tensorrt: ModuleType) -> None:
    """An error with its last words."""
    fake_tensorrt.RUNS = False
    executable.engine.words.append("DLA task submission failed")

    with pytest.raises(BackendError, match="graph g: the DLA did not run; found DLA task submission failed"):
        executable.run({"x": np.ones(SHAPE, np.float32)})


def test_run__where_the_driver_pins_nothing(executable: DlaExecutable) -> None:
    """No way to the host's memory at all: an error, not a copy to somewhere else."""
    executable.memory = FakeMemory(reaches=False)

    with pytest.raises(BackendError, match="the DLA does not reach the host's memory"):
        executable.run({"x": np.ones(SHAPE, np.float32)})


def test_close__ends_it(executable: DlaExecutable) -> None:
    """Twice is nothing; later runs are errors."""
    executable.close()
    executable.close()

    with pytest.raises(BackendError, match="graph g: the executable is closed"):
        executable.run({"x": np.ones(SHAPE, np.float32)})


def test_engine__of_another_graph(executable: DlaExecutable) -> None:
    """A seal that does not fit is refused before it runs."""
    spec = executable.inputs[0]
    other = GraphView("g", memoryview(b""), (type(spec)("x", "f32", (1, 8, 2, 2)),), executable.outputs, {})

    with pytest.raises(BackendError, match="the engine has other ports than the graph"):
        DlaExecutable(other, executable.engine, FakeMemory(), 7, lambda: None)
