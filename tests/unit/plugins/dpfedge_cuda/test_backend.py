# SPDX-License-Identifier: Apache-2.0
"""The whole suite for backends against the CUDA backend over stand-ins (`standing.py` says what they are)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import standin
from dpfedge_cuda import CudaBackend, dpfedge_register_backends
from dpfedge_cuda.backend import health_of
from dpfedge_cuda.telling import NVML as WHOM
from dpfedge_cuda.telling import nvml_teller
from dpfedge_cuda.verify import EXPECTED, UNSUPPORTED
from standing import DEVICE, StandInBackend, stand_in_driver

from dpfedge.backend.api import Health
from dpfedge.backend.registry import Registry
from dpfedge.backend.telling import Teller
from dpfedge.errors import BackendError, Unavailable
from dpfedge.testing.backend_suite import BackendSuite


@pytest.fixture(scope="module", autouse=True)
def _driver() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, stand_in_driver(patch):
        yield


class TestStandIn(BackendSuite):
    """All of it, as far as no GPU computes."""

    backend = StandInBackend()
    unsupported = UNSUPPORTED
    expected_failures = EXPECTED


NVML: dict[str, int | None] = {
    "utilisation": 40, "free": 60 << 30, "total": 80 << 30, "temperature": 61, "reasons": 0x4, "corrected": 5,
    "uncorrected": 1, "faults": 2, "clock": 1410, "clock_most": 1980,
    "power": 251_500,
}  # fmt: skip


def test_health_of__what_nvml_tells() -> None:
    """Shares, degrees, and totals since the driver was loaded; a power cap is no throttling."""
    assert health_of(NVML, DEVICE) == Health(0.4, 0.75, 61.0, False, 5, 1, 2, 251.5)


@pytest.mark.parametrize(
    ("reasons", "throttled"), [(0x1, False), (0x2, False), (0x8, True), (0x20, True), (0x40, True), (0x80, True)]
)
def test_health_of__throttle_reasons(reasons: int, throttled: bool) -> None:
    """Hardware and heat slow it down; idleness and chosen clocks do not."""
    assert health_of({**NVML, "reasons": reasons}, DEVICE).throttled == throttled


def test_health_of__what_it_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is made up: a GPU with memory of its own must tell of it, one without shares the machine's."""
    nothing = dict.fromkeys(NVML)
    with pytest.raises(BackendError, match="backend cuda: cuda:0: NVML tells no memory of this device"):
        health_of(nothing, DEVICE)
    monkeypatch.setattr("dpfedge_cuda.backend.free_memory", lambda: None)
    with pytest.raises(BackendError, match="NVML tells no memory"):
        health_of(nothing, replace(DEVICE, unified_memory=True))
    monkeypatch.undo()
    shared = health_of(nothing, replace(DEVICE, unified_memory=True))
    assert 0 < shared.free_memory <= 1
    assert (shared.utilisation, shared.temperature_c, shared.throttled, shared.faults) == (0.0, None, False, 0)


def test_health_of__wild_numbers() -> None:
    """Stay within what a share can be."""
    wild = health_of({**NVML, "utilisation": 4294967295, "free": 240 << 30}, DEVICE)
    assert (wild.utilisation, wild.free_memory) == (1.0, 1.0)


def test_health__asks_for_the_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU by its address, a MIG instance by its UUID."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("nvml.c", "libnvidia-ml.so.1")))
    teller = nvml_teller()
    backend = CudaBackend(lambda: teller)
    part = replace(DEVICE, facts={"part": "gi1/ci0", "uuid": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"})
    assert backend.health(DEVICE).utilisation == 0.4
    assert backend.health(part) == Health(0.0, 0.75, 61.0, False, 5, 1, 0, 251.5)
    teller.close()


def test_health__one_gpu_that_hangs_leaves_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked through a child of its own."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("nvml.c", "libnvidia-ml.so.1")))
    monkeypatch.setenv("STANDIN", "nvmlDeviceGetMemoryInfo=hang")
    tellers: list[Teller] = []

    def made() -> Teller:
        tellers.append(Teller(WHOM, first_s=1.0) if not tellers else nvml_teller())
        return tellers[-1]

    backend = CudaBackend(made)
    other = replace(DEVICE, id="cuda:1", facts={"part": "gi1/ci0", "uuid": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"})
    with pytest.raises(Unavailable, match="NVML does not answer within 1 s"):
        backend.health(DEVICE)
    monkeypatch.delenv("STANDIN")
    assert backend.health(other).free_memory == 0.75
    with pytest.raises(Unavailable, match="NVML does not answer within 1 s"):
        backend.health(DEVICE)
    for teller in tellers:
        teller.close()


def test_identity__everything_an_engine_depends_on() -> None:
    """GPU, driver and libraries, from files."""
    identity = CudaBackend().identity(DEVICE)
    assert identity.device["arch"] == "sm_90"
    assert identity.driver == "nvidia 580.65.06"
    assert identity.libraries["dpfedge-cuda"]


def test_register__under_its_name() -> None:
    """And importing it loads no onnxruntime."""
    code = "import sys, dpfedge_cuda; sys.exit('onnxruntime' in sys.modules or 'pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
    registry = Registry()
    dpfedge_register_backends(registry)
    assert registry.names() == ["cuda"]
