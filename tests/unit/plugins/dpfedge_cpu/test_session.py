# SPDX-License-Identifier: Apache-2.0
"""Executables and bindings of the CPU backend: memory of the caller, memory of onnxruntime, errors."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend, dpfedge_register_backends
from dpfedge_cpu.session import CpuExecutable, open_session, session_options
from made_graphs import SECTION, loaded, lowered, view

from dpfedge.backend.api import Budget, GraphView
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import BackendError, RunCancelled, Unsupported
from dpfedge.tensors import TensorSpec

WEIGHT = np.arange(64 * 64, dtype=np.float32).reshape(64, 64) / 1000


def affine() -> onnx.ModelProto:
    """y = x·W, z = x + 1; x f32[n, 64]."""
    nodes = Nodes("affine")
    nodes.add("MatMul", ["x", nodes.constant("w", WEIGHT)], "y")
    nodes.add("Add", ["x", nodes.constant("one", np.ones(1, np.float32))], "z")
    return nodes.model(
        [TensorSpec("x", "f32", ("n", 64))], [TensorSpec("y", "f32", ("n", 64)), TensorSpec("z", "f32", ("n", 64))]
    )


def growing() -> onnx.ModelProto:
    """grown = past ++ x; count = length of grown."""
    nodes = Nodes("growing")
    nodes.add("Concat", ["past", "x"], "grown", axis=0)
    nodes.add("Shape", ["grown"], "count")
    return nodes.model(
        [TensorSpec("past", "f32", ("p",)), TensorSpec("x", "f32", (1,))],
        [TensorSpec("grown", "f32", ("p1",)), TensorSpec("count", "i64", (1,))],
    )


@pytest.fixture
def graph() -> CpuExecutable:
    """The affine graph, loaded."""
    return loaded(affine())


def rows(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Some input."""
    return np.random.default_rng(count).standard_normal((count, 64)).astype(np.float32)


def test_run__all_outputs(graph: CpuExecutable) -> None:
    """A plain run returns every output."""
    x = rows(3)
    found = graph.run({"x": x})

    np.testing.assert_allclose(found["y"], x @ WEIGHT, rtol=1e-5)
    np.testing.assert_array_equal(found["z"], x + 1)


def test_bind__caller_memory_in_place(graph: CpuExecutable) -> None:
    """Inputs are read and outputs written where they lie; changing the input's bytes needs no new binding."""
    x, y = rows(2), np.full((2, 64), np.nan, np.float32)
    call = graph.bind()
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    first = y.copy()
    x += 1
    call.run()

    assert call.output("y") is y
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y - first, np.ones((2, 64), np.float32) @ WEIGHT, rtol=1e-4)


def test_bind__backend_memory_is_a_view(graph: CpuExecutable) -> None:
    """An output nobody gave memory for is a read-only view, not a copy."""
    call = graph.bind()
    call.set_input("x", rows(2))
    call.run()
    found = call.output("z")

    assert not found.flags.owndata
    assert not found.flags.writeable
    np.testing.assert_array_equal(found, rows(2) + 1)


def test_set_input__same_memory_is_not_bound_again(graph: CpuExecutable) -> None:
    """Neither the same array nor another array on the same memory and shape costs a bind."""
    call, x = graph.bind(), rows(2)
    calls: list[str] = []
    native = call._io
    call._io = SimpleNamespace(  # type: ignore[assignment]
        bind_input=lambda name, *rest: (calls.append(name), native.bind_input(name, *rest)),
    )
    for array in (x, x, x[:], x[:1], x):
        call.set_input("x", array)

    assert len(calls) == 3


def test_set_input__shape_changes(graph: CpuExecutable) -> None:
    """The same call runs with another number of rows, and outputs grow with it."""
    call = graph.bind()
    for count in (1, 5, 2):
        call.set_input("x", rows(count))
        call.run()
        assert call.output("y").shape == (count, 64)


def test_link__grows_without_copy() -> None:
    """An output fed back grows by one element per run; its address is the next run's input."""
    graph = loaded(growing())
    call = graph.bind()
    x = np.zeros(1, np.float32)
    call.set_input("past", np.zeros(0, np.float32))
    call.set_input("x", x)
    call.link("grown", "past")
    for step in range(5):
        x[0] = step
        call.run()

    np.testing.assert_array_equal(call.output("grown"), np.arange(5, dtype=np.float32))
    assert call.output("count")[0] == 5


def test_link__restart() -> None:
    """Setting a linked input again starts over."""
    graph = loaded(growing())
    call = graph.bind()
    start = np.zeros(0, np.float32)
    call.set_input("x", np.ones(1, np.float32))
    call.link("grown", "past")
    for _ in range(2):
        call.set_input("past", start)
        call.run()
        call.run()

    assert call.output("count")[0] == 2


@pytest.mark.parametrize(
    "array", [np.zeros((2, 64), np.float64), np.zeros((64, 2), np.float32).T, np.zeros((4, 64), np.float32)[::2]]
)
def test_set_input__unfit_array(graph: CpuExecutable, array: np.ndarray[Any, Any]) -> None:
    """Another dtype or memory that is not contiguous is refused, never converted."""
    with pytest.raises(BackendError, match="graph graph: x: array does not fit the port"):
        graph.bind().set_input("x", array)


def test_set_output__read_only(graph: CpuExecutable) -> None:
    """The library would write into a mapping that is none's to write, and the process would end."""
    with pytest.raises(BackendError, match="graph graph: y: an output needs memory that may be written"):
        graph.bind().set_output("y", np.frombuffer(bytes(512), np.float32).reshape(2, 64))


def test_bind__unknown_ports(graph: CpuExecutable) -> None:
    """Unknown names are errors naming the known ones."""
    call = graph.bind()
    with pytest.raises(BackendError, match="no such port; found q; allowed x"):
        call.set_input("q", rows(1))
    with pytest.raises(BackendError, match="no such port; found y → q"):
        call.link("y", "q")
    with pytest.raises(BackendError, match="nothing has run yet"):
        call.output("y")


def test_run__native_errors_are_mapped(graph: CpuExecutable) -> None:
    """What onnxruntime raises arrives as BackendError with the graph's name."""
    call = graph.bind()
    with pytest.raises(BackendError, match="graph graph: "):
        call.run()
    with pytest.raises(BackendError, match="graph graph: "):
        graph.run({"x": np.zeros((1, 63), np.float32)})


def test_cancel__is_kept_until_rearmed(graph: CpuExecutable) -> None:
    """Also when it comes before the run; another binding goes on, and an error of its own keeps its kind."""
    call, other = graph.bind(), graph.bind()
    for one in (call, other):
        one.set_input("x", rows(1))
    call.cancel()
    for _ in range(2):
        with pytest.raises(RunCancelled, match="graph graph: the run was cancelled"):
            call.run()
    other.run()
    call.rearm()
    call.run()
    assert call.output("y").shape == (1, 64)
    with pytest.raises(BackendError) as caught:
        graph.bind().run()
    assert not isinstance(caught.value, RunCancelled)


def test_close__then_run(graph: CpuExecutable) -> None:
    """A closed executable refuses to run."""
    graph.close()
    with pytest.raises(BackendError, match="the executable is closed"):
        graph.run({"x": rows(1)})


def test_load__weights_stay_in_place() -> None:
    """A weight that no kernel packs is read from the given memory: changing it changes the result."""
    nodes = Nodes("table")
    nodes.add("Gather", [nodes.constant("w", WEIGHT), "i"], "row", axis=0)
    model = nodes.model([TensorSpec("i", "i64", ("n",))], [TensorSpec("row", "f32", ("n", 64))])
    given = view(lowered(model))
    memory = bytearray(given.weights[SECTION])
    backend = CpuBackend()
    given = type(given)(
        given.name, given.code, given.inputs, given.outputs, {SECTION: memoryview(memory)}, given.options
    )
    graph = backend.load(given, backend.devices(Path("/"))[0], Budget())
    np.frombuffer(memory, np.float32)[:] = 7

    assert (graph.run({"i": np.array([3])})["row"] == 7).all()


def test_load__layout_of_another_cpu() -> None:
    """A graph whose memory layout belongs to another CPU is refused."""
    backend, given = CpuBackend(), view(lowered(affine()))
    other = type(given)(given.name, given.code, given.inputs, given.outputs, given.weights, {"arch": "x86-64-v9"})

    with pytest.raises(Unsupported, match="memory layout belongs to another CPU"):
        backend.load(other, backend.devices(Path("/"))[0], Budget())


def test_load__damaged_graph() -> None:
    """Bytes that are no graph are a BackendError."""
    backend, given = CpuBackend(), view(lowered(affine()))
    broken = type(given)(given.name, memoryview(b"\x07nothing"), given.inputs, given.outputs, given.weights)

    with pytest.raises(BackendError):
        backend.load(broken, backend.devices(Path("/"))[0], Budget())


def test_load__operators_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A compiled part for another machine: the graph that needs it is named."""
    (tmp_path / "kernels.so").write_bytes(b"not for here")
    monkeypatch.setattr("dpfedge_cpu.kernels.library", lambda: tmp_path / "kernels.so")
    given = GraphView("g", memoryview(b"dpfedge.cpu"), (), (), {})
    with pytest.raises(BackendError, match=r"kernels\.so") as found:
        open_session(given, Budget())
    assert found.value.where == "graph g"


@pytest.mark.parametrize("others", [{}, {"weights.other": memoryview(bytes(64))}])
def test_load__reads_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, memoryview]) -> None:
    """A graph that names a file instead of a section of the package is refused, wherever the file lies."""
    backend, graph = CpuBackend(), lowered(affine())
    name = next(iter(graph.weights))
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    monkeypatch.chdir(tmp_path)
    for place in ("w.bin", str(tmp_path / "w.bin"), f"../{tmp_path.name}/w.bin"):
        code = backend.finish(graph, {name: (place, 0, WEIGHT.nbytes)})
        given = GraphView("graph", memoryview(code), graph.inputs, graph.outputs, others)
        with pytest.raises(BackendError, match="graph graph: "):
            backend.load(given, backend.devices(Path("/"))[0], Budget())


def test_session_options__spinning() -> None:
    """One thread never spins; several do within a run and for a moment, for ever only when the budget says so."""
    alone, several, spinning = (session_options(Budget(*given)) for given in ((1,), (2,), (2, (), True)))

    assert alone.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert several.get_session_config_entry("session.intra_op.allow_spinning") == "1"
    assert several.get_session_config_entry("session.intra_op.spin_duration_us") == "50"
    assert several.intra_op_num_threads == 2
    with pytest.raises(RuntimeError):
        spinning.get_session_config_entry("session.intra_op.spin_duration_us")


def test_idle__takes_no_time() -> None:
    """Half a second after a run with two threads no processor time passes."""
    import time

    backend = CpuBackend()
    graph = backend.load(view(lowered(affine())), backend.devices(Path("/"))[0], Budget(threads=2))
    graph.run({"x": rows(64)})
    before = time.process_time()
    time.sleep(0.5)

    assert time.process_time() - before < 0.05


def test_session_options__pins_workers() -> None:
    """Workers beside the calling thread get the budget's other cores, counted from 1."""
    options = session_options(Budget(threads=3, cores=(4, 5, 6)))

    assert options.get_session_config_entry("session.intra_op_thread_affinities") == "6;7"


def test_devices__imports_no_runtime() -> None:
    """Listing devices in a fresh process does not import onnxruntime."""
    import subprocess
    import sys

    code = (
        "import sys, pathlib, dpfedge_cpu; print(len(dpfedge_cpu.CpuBackend().devices(pathlib.Path('/'))),"
        " 'onnxruntime' in sys.modules, 'onnx' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout.split() == ["1", "False", "False"]


def test_register__one_backend() -> None:
    """The hook offers the backend `cpu`."""
    offered: list[Any] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))  # type: ignore[arg-type]

    assert [backend.name for backend in offered] == ["cpu"]


def test_health__shares() -> None:
    """Health is shares between 0 and 1."""
    backend = CpuBackend()
    health = backend.health(backend.devices(Path("/"))[0])

    assert 0 <= health.utilisation <= 1
    assert 0 < health.free_memory <= 1
