# SPDX-License-Identifier: Apache-2.0
"""Graphs onto GPUs, over stand-ins: streams by urgency, pressure, MIG, kernels, TensorRT, and what cannot be loaded."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dpfedge_cpu.provider import Providers
from dpfedge_cuda import CudaBackend, loading
from dpfedge_cuda.driver import Driver
from dpfedge_cuda.loading import Loader, check_kernels
from standing import DEVICE, StandInBackend, fake_providers, stand_in_driver

from dpfedge.backend.api import Budget, Device, GraphView, SealedView, keeps_links
from dpfedge.backend.fatbin import Kernels
from dpfedge.errors import BackendError, Unavailable, Unsupported
from dpfedge.testing.loading import lowered, view
from dpfedge.testing.models import affine, right_affine, rows

PART = "c7384736-a75d-5afc-978f-d2f1294409fd"


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """libcuda is the stand-in."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with stand_in_driver(monkeypatch):
        yield


@pytest.fixture
def graph() -> GraphView:
    """y = x·W + 1, lowered."""
    backend = StandInBackend()
    return view(backend, lowered(backend, DEVICE, affine(2)), "affine")


def test_load__a_stream_for_each_level(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Urgencies 0 to 3 share one, 4 to 7 the other, which has the last priority."""
    seen: list[int] = []

    def options(ordinal: int, stream: int, **more: Any) -> Providers:
        seen.append(stream)
        return fake_providers(ordinal, stream, **more)

    monkeypatch.setattr(loading, "cuda_providers", options)
    one = Loader()
    for urgency in (0, 3, 4, 7):
        one.load(graph, DEVICE, Budget(urgency=urgency)).close()
    assert seen == [0x1005, 0x1005, 0x1000, 0x1000]


@pytest.mark.parametrize(("pages", "keeps"), [("0", True), ("1", False)])
def test_load__caches_stay_where_the_device_has_memory(
    graph: GraphView, monkeypatch: pytest.MonkeyPatch, pages: str, keeps: bool
) -> None:
    """Grace reads the host's memory as its own."""
    monkeypatch.setenv("CUDA_HOST_PAGES", pages)
    assert keeps_links(Loader().load(graph, DEVICE, Budget())) is keeps


def test_load__work_that_is_not_urgent_waits_for_memory(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 15 % free; urgent work goes on."""
    one = Loader()
    urgent, patient = (one.load(graph, DEVICE, Budget(urgency=urgency)) for urgency in (3, 4))
    pressure = one._open[DEVICE.id][1]
    pressure._wait_s, pressure._look_s = 0.05, 0.0
    monkeypatch.setenv("CUDA_FREE", "14")
    x = rows(2)
    np.testing.assert_allclose(urgent.run({"x": x})["y"], right_affine(x)["y"], rtol=1e-4)
    call = patient.bind()
    call.set_input("x", x)
    for act in (lambda: patient.run({"x": x}), call.run):
        with pytest.raises(BackendError, match=r"backend cuda: device memory stays low.*found 14% free"):
            act()
    monkeypatch.setenv("CUDA_FREE", "21")
    call.run()
    np.testing.assert_allclose(call.output("y"), right_affine(x)["y"], rtol=1e-4)


def mig(place: str = "gi1/ci0", uuid: str = f"MIG-{PART}") -> Device:
    """An instance."""
    return replace(DEVICE, id=f"cuda:0/{place}", facts={**DEVICE.facts, "part": place, "uuid": uuid})


def test_load__a_mig_instance_is_named_before_cuda_begins(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES is set for this process, and another instance is then refused."""
    monkeypatch.setenv("CUDA_UUID", PART.replace("-", ""))
    monkeypatch.setattr(os, "environ", os.environ)
    one = Loader()
    try:
        one.load(graph, mig(), Budget())
        assert os.environ["CUDA_VISIBLE_DEVICES"] == f"MIG-{PART}"
        with pytest.raises(Unsupported, match=r"cuda:0/gi2/ci0: a process uses one MIG instance.*start a worker"):
            one.load(graph, mig("gi2/ci0", "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"), Budget())
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)


def test_load__a_device_cuda_does_not_show(graph: GraphView) -> None:
    """Unavailable, with those it does show; never another one in its place."""
    with pytest.raises(Unavailable, match=r"cuda:1: CUDA does not see this device; found NVIDIA H100.*0000:18:00.0"):
        Loader().load(graph, replace(DEVICE, id="cuda:1", facts={"pci": "0000:2a:00.0"}), Budget())


@pytest.mark.parametrize(
    ("first", "place", "ordinal"),
    [("00000000:18:00.0", "0000:18:00.0", 0), ("0000:00:04.0", "0000:00:05.0", 1), ("0001:01:00.0", "0001:02:00.0", 1)],
)
def test_load__finds_a_device_by_its_address(
    graph: GraphView, monkeypatch: pytest.MonkeyPatch, first: str, place: str, ordinal: int
) -> None:
    """However the driver writes it; in a virtual machine all GPUs are on one bus."""
    monkeypatch.setenv("CUDA_BDF", first)
    monkeypatch.setenv("CUDA_GPUS", "2")
    one = Loader()
    one.load(graph, replace(DEVICE, facts={"pci": place}), Budget())
    assert one._open[DEVICE.id][0].ordinal == ordinal


@pytest.mark.parametrize(
    "function", ["cuInit", "cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuStreamCreateWithPriority"]
)
@pytest.mark.parametrize("what", ["999", "hang"])
def test_load__each_call_may_fail(graph: GraphView, monkeypatch: pytest.MonkeyPatch, function: str, what: str) -> None:
    """A named error within the bound, and no session on the CPU."""
    monkeypatch.setenv("STANDIN", f"{function}={what}")
    with pytest.raises(BackendError, match=rf"backend cuda.*({function}|does not answer)"):
        Loader(Driver(start_s=1.0, call_s=1.0)).load(graph, DEVICE, Budget())


def test_load__a_session_that_never_opens(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that hangs in its vendor's libraries is given up within a bound, by name."""
    never = threading.Event()
    monkeypatch.setattr(loading, "_OPEN_S", 0.2)
    monkeypatch.setattr(loading, "open_on", lambda *args: (never.wait(), {}))
    with pytest.raises(Unavailable, match="graph affine: onnxruntime: the library does not answer"):
        Loader().load(graph, DEVICE, Budget())
    never.set()


def test_load__a_mig_instance_without_a_name(graph: GraphView) -> None:
    """As where NVML is told nothing of MIG: CUDA could not be asked for that one alone."""
    backend, part = StandInBackend(), replace(DEVICE, id="cuda:0/gi1/ci0", facts={**DEVICE.facts, "part": "gi1/ci0"})
    for act in (lambda: backend.load(graph, part, Budget()), lambda: CudaBackend.health(backend, part)):
        with pytest.raises(Unavailable, match="cuda:0/gi1/ci0: NVML does not name this MIG instance"):
            act()
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_load__after_a_fork(graph: GraphView) -> None:
    """CUDA does not survive it, also where everything that a load needs was made before."""
    backend = StandInBackend()
    backend.load(graph, DEVICE, Budget()).close()
    pid = os.fork()
    if pid == 0:
        told = False
        try:
            backend.load(graph, DEVICE, Budget())
        except Unavailable as error:
            told = "begun before this process was forked" in str(error)
        finally:
            os._exit(0 if told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_check_kernels__of_the_build() -> None:
    """Code for another major version, without any that could be compiled anew, cannot run."""
    build = Kernels(frozenset({75, 80, 86, 89, 90, 120}), frozenset())
    check_kernels("sm_90", build)
    check_kernels("sm_121", build)
    check_kernels("sm_100", Kernels(frozenset({90}), frozenset({90})))
    with pytest.raises(Unsupported, match=r"no kernels for this GPU; found sm_100; allowed sm_75, .*it has no PTX"):
        check_kernels("sm_100", build)


def test_load__without_kernels_for_the_gpu(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said when loading, before CUDA is begun."""
    monkeypatch.setattr(loading, "_kernels", lambda: Kernels(frozenset({89}), frozenset()))
    with pytest.raises(Unsupported, match="found sm_90"):
        Loader().load(graph, DEVICE, Budget())


def test_load__graphs_that_cannot_be_captured(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is opened again without; what it says of other things stays an error."""
    asked: list[bool] = []

    def opened(view: GraphView, budget: Budget, providers: Providers) -> tuple[Any, Mapping[str, Any]]:
        asked.append(providers.session.get("graphs") == "1")
        if asked[-1]:
            raise BackendError("This session cannot use the graph capture feature as requested", where="graph affine")
        return real(view, budget, replace(providers, session={}))

    def options(ordinal: int, stream: int, *, graphs: bool, **more: Any) -> Providers:
        return replace(
            fake_providers(ordinal, stream, graphs=graphs, **more), session={"graphs": "1" if graphs else "0"}
        )

    real = loading.open_on
    monkeypatch.setattr(loading, "open_on", opened)
    monkeypatch.setattr(loading, "cuda_providers", options)
    assert not Loader().load(graph, DEVICE, Budget()).captures
    assert asked == [True, False]

    def broken(*args: object) -> None:
        raise BackendError("something else", where="graph affine")

    monkeypatch.setattr(loading, "open_on", broken)
    with pytest.raises(BackendError, match="something else"):
        Loader().load(graph, DEVICE, Budget())


def test_seal__nothing_without_tensorrt(graph: GraphView) -> None:
    """There is nothing to build."""
    assert Loader().seal(graph, DEVICE, Budget()) is None


def test_seal__nothing_of_shapes_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT does not run them."""
    monkeypatch.setattr(loading, "tensorrt_wanted", lambda environ, listed: True)
    backend = StandInBackend()
    graph = view(backend, lowered(backend, DEVICE, affine("n")), "affine")
    one = Loader()
    assert one.seal(graph, DEVICE, Budget()) is None
    x = rows(3)
    np.testing.assert_allclose(one.load(graph, DEVICE, Budget()).run({"x": x})["y"], right_affine(x)["y"], rtol=1e-4)


def test_seal__tensorrts_engines(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph that TensorRT's provider wrote is what is opened when it is loaded again."""
    opened: list[bytes] = []
    real = loading.open_on

    def writes(view: GraphView, budget: Budget, providers: Providers) -> tuple[Any, Mapping[str, Any]]:
        opened.append(bytes(view.code))
        if target := providers.session.get("trt_ep_context_file_path"):
            with open(target, "wb") as file:
                file.write(bytes(view.code))
        return real(view, budget, replace(providers, session={}))

    def options(ordinal: int, stream: int, *, tensorrt: Mapping[str, str] | None, **more: Any) -> Providers:
        return replace(fake_providers(ordinal, stream, tensorrt=tensorrt, **more), session=tensorrt or {})

    monkeypatch.setattr(loading, "open_on", writes)
    monkeypatch.setattr(loading, "cuda_providers", options)
    monkeypatch.setattr(loading, "tensorrt_wanted", lambda environ, listed: True)
    one = Loader()
    sealed = one.seal(graph, DEVICE, Budget())
    assert sealed is not None
    engine = memoryview(sealed["engine"][0].tobytes())
    loaded = one.load(replace(graph, sealed={"engine": SealedView(engine, -1, 0)}), DEVICE, Budget())
    assert opened[1] == bytes(engine)
    assert not loaded.captures
    np.testing.assert_allclose(loaded.run({"x": rows(2)})["y"], right_affine(rows(2))["y"], rtol=1e-4)


def test_preload__prints_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """onnxruntime prints what it does not find, and a command's output may be JSON."""
    loading._preload.cache_clear()
    monkeypatch.setattr(loading, "runtime", lambda name: SimpleNamespace(preload_dlls=lambda: print("Failed to load")))
    loading._preload()
    assert capsys.readouterr().out == ""
    loading._preload.cache_clear()
