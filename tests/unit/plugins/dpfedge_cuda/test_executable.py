# SPDX-License-Identifier: Apache-2.0
"""Executables on a GPU, over stand-ins: which runs are captured graphs, and native errors in words."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from dpfedge_cuda.executable import CudaExecutable, cuda_errors
from dpfedge_cuda.turns import CAPTURES
from standing import DEVICE, StandInBackend, stand_in_driver

from dpfedge.errors import BackendError, RunCancelled, Unavailable, Unsupported
from dpfedge.testing.calls import same, slots
from dpfedge.testing.loading import load
from dpfedge.testing.models import affine, right_affine, rows


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInBackend]:
    """Over the stand-in driver."""
    with stand_in_driver(monkeypatch):
        yield StandInBackend()


def executable(backend: StandInBackend, rows: int | str = 2) -> CudaExecutable:
    """y = x·W + 1, z = x + x."""
    found = load(backend, DEVICE, affine(rows))
    assert isinstance(found, CudaExecutable)
    return found


def test_run__fixed_memory_becomes_one_graph_for_each_place(backend: StandInBackend) -> None:
    """A link's slots come round again, and with them their graphs; the first runs are alone in the process."""
    one = executable(backend)
    assert one.captures
    call = one.bind()
    alone: list[bool] = []
    with slots(6) as places:
        for turn in range(8):
            x, y, z = places[:3] if turn % 2 else places[3:]
            x[...] = rows(2, seed=turn)
            call.set_input("x", x)
            call.set_output("y", y)
            call.set_output("z", z)
            call.run()
            assert call._now is not None
            alone.append(call._now.runs <= 3)
            same({"y": y, "z": z}, right_affine(x))
        numbers = [graph.number for graph in call._captured.values()]
        del call, x, y, z
    assert sorted(numbers) == [1, 2]
    assert alone == [True] * 6 + [False] * 2
    assert CAPTURES.claim()
    with CAPTURES.alone:  # nobody was left inside
        pass


def test_run__is_plain_while_something_loads(backend: StandInBackend) -> None:
    """A load may take minutes, and a capture cannot be beside it: no run waits; afterwards it is captured."""
    call = executable(backend).bind()
    with slots(3) as places:
        places[0][...] = rows(2)
        call.set_input("x", places[0])
        call.set_output("y", places[1])
        call.set_output("z", places[2])
        with CAPTURES.loading:
            for _ in range(4):
                call.run()
            assert call._options is call._plain.options
            call.cancel()
            with pytest.raises(RunCancelled):
                call.run()
            call.rearm()
        assert call._now is not None
        assert call._now.runs == 0
        for _ in range(4):
            call.run()
        assert call._now.runs == 4
        assert call._options is call._now.options
        same({"y": places[1]}, {"y": right_affine(rows(2))["y"]})
        del call


def test_run__graphs_are_bounded(backend: StandInBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one used longest ago is given back."""
    monkeypatch.setattr("dpfedge_cuda.executable._GRAPHS_MOST", 2)
    one = executable(backend)
    released: list[int] = []
    monkeypatch.setattr(one, "forget_graph", released.append)
    call = one.bind()
    with slots(9) as places:
        for place in range(3):
            call.set_input("x", places[3 * place])
            call.set_output("y", places[3 * place + 1])
            call.set_output("z", places[3 * place + 2])
            call.run()
        assert len(call._captured) == 2
        del call
    assert released == [1]


def test_run__nothing_is_captured_that_may_move(backend: StandInBackend) -> None:
    """Memory that is copied, outputs that are allocated, shapes that may change."""
    call = executable(backend).bind()
    call.set_input("x", rows(2))
    for _ in range(5):
        call.run()
    assert not call._captured
    assert not executable(backend, "n").captures


def test_cancel__also_between_graphs(backend: StandInBackend) -> None:
    """It reaches the run whatever graph it is."""
    call = executable(backend).bind()
    with slots(3) as places:
        call.set_input("x", places[0])
        call.set_output("y", places[1])
        call.set_output("z", places[2])
        call.run()
        call.cancel()
        for _ in range(2):
            with pytest.raises(RunCancelled):
                call.run()
        call.rearm()
        places[0][...] = rows(2)
        call.run()
        same({"y": places[1]}, {"y": right_affine(rows(2))["y"]})
        del call


FAILURE = (
    "{} ; GPU=-1 ; hostname=vm ; file=/onnxruntime_src/cuda_execution_provider.cc ; line=355 ; expr=cudaSetDevice(i); "
)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        # as onnxruntime-gpu 1.31.1 and libcudart 13 said them to a stand-in for the driver
        (
            "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
            Unavailable,
            "older than this",
        ),
        (
            "CUDA failure 36: API call is not supported in the installed CUDA driver",
            Unavailable,
            "older than this build",
        ),
        ("CUDA failure 100: no CUDA-capable device is detected", Unavailable, "the device is not there"),
        ("CUDA failure 2: out of memory", BackendError, "device memory is full"),
        ("CUDA failure 209: no kernel image is available for execution", Unsupported, "has no kernels for this GPU"),
        ("CUDA failure 700: an illegal memory access was encountered", BackendError, "the device failed"),
    ],
)
def test_cuda_errors__in_words(text: str, kind: type[BackendError], words: str) -> None:
    """What it means and what to do; onnxruntime's own text without this machine's name."""
    with pytest.raises(kind, match=words) as caught, cuda_errors():
        raise BackendError(FAILURE.format(text), where="graph g")
    assert type(caught.value) is kind
    assert caught.value.where == "graph g"
    assert caught.value.found == f"{text} (cudaSetDevice)"
    assert caught.value.remedy


def test_cuda_errors__others_stay() -> None:
    """Also a cancel whose text looks like one."""
    with pytest.raises(BackendError, match="something else"), cuda_errors():
        raise BackendError("something else", where="graph g")
    with pytest.raises(RunCancelled), cuda_errors():
        raise RunCancelled("out of memory", where="graph g")


def test_run__errors_of_a_run_are_put_in_words(backend: StandInBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bound runs and others."""
    one = executable(backend)
    call = one.bind()
    call.set_input("x", rows(2))

    def fails(*args: object) -> None:
        raise RuntimeError(FAILURE.format("CUDA failure 2: out of memory"))

    monkeypatch.setattr(one.session, "run_with_iobinding", fails)
    monkeypatch.setattr(one.session, "run", fails)
    for act in (call.run, lambda: one.run({"x": rows(2)})):
        with pytest.raises(BackendError, match=r"graph affine: device memory is full; found CUDA failure 2.*smaller"):
            act()


def test_run__each_thread_captures_its_own(backend: StandInBackend) -> None:
    """onnxruntime keeps captured graphs by thread: another one's first runs are alone in the process, too."""
    call = executable(backend).bind()
    with slots(3) as places:
        places[0][...] = rows(2)
        call.set_input("x", places[0])
        call.set_output("y", places[1])
        call.set_output("z", places[2])
        for _ in range(4):
            call.run()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(call.run).result()
            assert call._now is not None
            assert (call._now.number, call._now.runs) == (2, 1)
        call.run()
        assert (call._now.number, call._now.runs) == (1, 5)
        same({"y": places[1]}, {"y": right_affine(rows(2))["y"]})
        del call
