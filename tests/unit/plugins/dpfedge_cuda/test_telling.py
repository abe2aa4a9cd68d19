# SPDX-License-Identifier: Apache-2.0
"""NVML and the driver asked through children, with stand-ins that fail in every way: a named error within a bound."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import standin
from dpfedge_cuda.telling import NVML, ask_cuda, nvml_teller

from dpfedge.backend.telling import Teller, _end_own
from dpfedge.errors import BackendError, Unavailable

PCI = "0000:18:00.0"
MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in for NVML, for children of this process."""
    folder = standin.build("nvml.c", "libnvidia-ml.so.1")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    return folder


@pytest.fixture
def teller() -> Iterator[Teller]:
    """One with short bounds."""
    one = Teller(NVML, answer_s=1.0, first_s=10.0)
    yield one
    one.close()


def test_ask__everything_nvml_tells(nvml: Path, teller: Teller) -> None:
    """What a device is and does; through one process, whose handles stay open."""
    told = teller.ask("list")
    (gpu,) = told["gpus"]
    assert told["driver"] == "580.65.06"
    assert (gpu["pci"], gpu["capability"], gpu["memory"], gpu["mig"]) == (PCI, 90, 80 << 30, None)
    assert gpu["uuid"].startswith("GPU-")

    child = teller._child
    health = teller.ask("health", PCI)
    assert teller._child is child
    assert health["utilisation"] == 40
    assert health["free"] / health["total"] == 0.75
    assert (health["temperature"], health["corrected"], health["uncorrected"], health["faults"]) == (61, 5, 1, 0)
    assert (health["clock"], health["clock_most"]) == (1410, 1980)


def test_ask__instances_of_mig(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """With gaps in their numbers; no utilisation is told of one, temperature and errors are the GPU's."""
    monkeypatch.setenv("NVML_MIG", "1")

    parts = teller.ask("list")["gpus"][0]["mig"]
    assert [one["place"] for one in parts] == ["gi1/ci0", "gi2/ci0"]
    assert {one["memory"] for one in parts} == {40 << 30}
    health = teller.ask("health", MIG)
    assert (health["utilisation"], health["temperature"], health["total"]) == (None, 61, 40 << 30)


def test_ask__what_is_not_supported(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """`[N/A]` of nvidia-smi: nothing is told, and nothing made up."""
    monkeypatch.setenv("NVML_LIES", "na")

    assert set(teller.ask("health", PCI).values()) == {None, 1410, 1980}
    (gpu,) = teller.ask("list")["gpus"]
    assert (gpu["memory"], gpu["serial"], gpu["vbios"]) == (None, "", "")


@pytest.mark.parametrize(("xid", "faults"), [("79", 3), ("13", 0), ("43", 0)])
def test_ask__xids(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch, xid: str, faults: int) -> None:
    """Those of the device are counted, those of programs (13, 31, 43, …) are not."""
    monkeypatch.setenv("NVML_XIDS", "3")
    monkeypatch.setenv("NVML_XID", xid)

    assert teller.ask("health", PCI)["faults"] == faults
    assert teller.ask("health", PCI)["faults"] == faults


def test_ask__an_older_driver(monkeypatch: pytest.MonkeyPatch, teller: Teller) -> None:
    """Throttle reasons under their old name."""
    folder = standin.build("nvml.c", "libnvidia-ml.so.1", "nvmlDeviceGetCurrentClocksEventReasons")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setenv("NVML_REASONS", "64")

    assert teller.ask("health", PCI)["reasons"] == 64


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (9, Unavailable, "the NVIDIA kernel driver is not loaded; found Driver Not Loaded; load the NVIDIA kernel"),
        (15, Unavailable, "the GPU fell off the bus; found GPU is lost"),
        (16, Unavailable, "the GPU must be reset"),
        (18, Unavailable, "library and kernel driver are of different versions; found .*mismatch"),
        (999, BackendError, "NVML refuses; found Unknown Error"),
    ],
)
def test_ask__errors_in_words(
    nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch, code: int, kind: type[BackendError], words: str
) -> None:
    """At the start, and later, when a device that was there is lost."""
    monkeypatch.setenv("STANDIN", f"nvmlInitWithFlags={code}")
    with pytest.raises(kind, match=f"backend cuda: {words}"):
        teller.ask("list")
    monkeypatch.setenv("STANDIN", f"nvmlDeviceGetMemoryInfo={code}@2")
    assert teller.ask("health", PCI)["total"]
    with pytest.raises(kind, match=words):
        teller.ask("health", PCI)


FUNCTIONS = (
    "nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMigMode", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetSerial",
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_ask__each_call_may_fail(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """Whichever it is, the error has NVML's own word."""
    monkeypatch.setenv("STANDIN", f"{function}=999")
    with pytest.raises(BackendError, match="backend cuda: NVML refuses; found Unknown Error"):
        teller.ask("list")


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlDeviceGetMemoryInfo"])
def test_ask__that_hangs(nvml: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    """The child is killed; for a while nobody asks again, then a new one does."""
    teller = Teller(NVML, answer_s=0.3, first_s=0.3)
    monkeypatch.setattr("dpfedge.backend.telling._PAUSE_S", 0.2)
    monkeypatch.setenv("STANDIN", f"{function}=hang")
    with pytest.raises(Unavailable, match=r"NVML does not answer within 0\.3 s; .*dmesg"):
        teller.ask("health", PCI)
    assert teller._child is None
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="does not answer"):
        teller.ask("health", PCI)
    assert teller._child is None, f"asked again after {time.monotonic() - begun} s"

    monkeypatch.delenv("STANDIN")
    monkeypatch.setattr("dpfedge.backend.telling._PAUSE_S", 0.0)
    teller._first_s = 10.0
    assert teller.ask("health", PCI)["utilisation"] == 40
    teller.close()


def test_ask__that_cannot_even_be_killed(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in the kernel's uninterruptible sleep is left behind, and no second one started beside it."""
    teller.ask("list")
    monkeypatch.setattr("dpfedge.backend.telling._ended", lambda child: False)
    left = teller._child
    assert left is not None
    teller.close()
    with pytest.raises(Unavailable, match=f"process {left.pid} hangs in NVML and cannot be killed"):
        teller.ask("list")
    left.kill()
    left.communicate()
    assert teller.ask("list")["driver"]
    monkeypatch.undo()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml))


def test_ask__after_a_fork(nvml: Path, teller: Teller) -> None:
    """The parent's child is neither read from nor killed; the forked process asks through its own."""
    teller.ask("list")
    child = teller._child
    assert child is not None
    pid = os.fork()
    if pid == 0:
        try:
            right = teller.ask("health", PCI)["utilisation"] == 40 and teller._child is not child
            teller.close()
            _end_own(child, os.getppid())
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert child.poll() is None
    assert teller.ask("health", PCI)["utilisation"] == 40
    assert teller._child is child


def test_ask__that_crashes(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child dies, this process does not."""
    monkeypatch.setenv("STANDIN", "nvmlDeviceGetUtilizationRates=crash")
    with pytest.raises(Unavailable, match="NVML ended the process that asked it by signal 11"):
        teller.ask("health", PCI)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("hang", "NVML does not answer within 1 s"),
        ("crash", "NVML ended the process that asked it by signal 11"),
        ("exit", "NVML ended the process that asked it with status 0"),
    ],
)
def test_ask__a_library_that_fails_as_it_is_loaded(
    nvml: Path, monkeypatch: pytest.MonkeyPatch, what: str, words: str
) -> None:
    """An error in words, as later."""
    monkeypatch.setenv("STANDIN", f"load={what}")
    with pytest.raises(Unavailable, match=words):
        Teller(NVML, first_s=1.0 if what == "hang" else 30.0).ask("list")


@pytest.mark.parametrize("what", ["print", "bytes", "fork"])
def test_ask__a_library_that_does_other_things(nvml: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """What it prints is no answer, and what it leaves behind ends with the child."""
    monkeypatch.setenv("STANDIN", f"load={what}")
    teller = nvml_teller()
    assert teller.ask("list")["driver"] == "580.65.06"
    child = teller._child
    assert child is not None
    teller.close()
    while _alive(child.pid):
        time.sleep(0.01)


def _alive(group: int) -> bool:
    """Whether a process of the group is there that has not ended; zombies are for init to reap."""
    states = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            states += [fields[0]] if int(fields[2]) == group else []
    return any(state != "Z" for state in states)


def test_ask__one_broken_gpu_of_two(nvml: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other is told."""
    monkeypatch.setenv("NVML_GPUS", "2")
    monkeypatch.setenv("STANDIN", "nvmlDeviceGetHandleByIndex_v2=15@2")

    (gpu,) = teller.ask("list")["gpus"]
    assert gpu["pci"] == PCI


def test_ask__without_the_library(tmp_path: Path, teller: Teller, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container without NVIDIA's utilities."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"libnvidia-ml\.so\.1 is not there.*NVIDIA_DRIVER_CAPABILITIES"):
        teller.ask("list")


def test_ask_cuda__what_the_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """In CUDA's order, with the address and the UUID by which a device is found again."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("cuda.c", "libcuda.so.1")))
    monkeypatch.setenv("CUDA_GPUS", "2")

    devices = ask_cuda()["devices"]

    assert [one["pci"] for one in devices] == [PCI, "0000:19:00.0"]
    assert devices[0]["uuid"] == "8932f937-d72c-4106-c12f-20bd9faed9f6"
    assert (devices[0]["capability"], devices[0]["memory"], devices[0]["maps"]) == (90, 80 << 30, True)


CALLS = ("cuDriverGetVersion", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId",
         "cuDeviceGetUuid_v2", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute")  # fmt: skip


@pytest.mark.parametrize("function", CALLS)
@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("999", "the CUDA driver refuses; found {}: CUDA_ERROR_UNKNOWN, as the driver puts it \\(999\\)"),
        ("hang", "the CUDA driver does not answer within 1 s"),
        ("crash", "the CUDA driver ended the process that asked it by signal 11"),
    ],
)
def test_ask_cuda__each_call_may_fail(monkeypatch: pytest.MonkeyPatch, function: str, what: str, words: str) -> None:
    """By an error, by not coming back, by dying."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("cuda.c", "libcuda.so.1")))
    monkeypatch.setenv("STANDIN", f"{function}={what}")
    with pytest.raises(Unavailable, match="backend cuda: " + words.format(function)):
        ask_cuda(within_s=1.0 if what == "hang" else 30.0)


@pytest.mark.parametrize("what", ["print", "bytes", "fork"])
def test_ask_cuda__a_library_that_does_other_things(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Prints, or leaves a process behind: the answer is what the driver tells."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("cuda.c", "libcuda.so.1")))
    monkeypatch.setenv("STANDIN", f"load={what}")

    assert len(ask_cuda()["devices"]) == 1


def test_ask_cuda__one_broken_gpu_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other is told, with its own number."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(standin.build("cuda.c", "libcuda.so.1")))
    monkeypatch.setenv("CUDA_GPUS", "2")
    monkeypatch.setenv("STANDIN", "cuDeviceGetUuid_v2=46@2")

    assert [one["ordinal"] for one in ask_cuda()["devices"]] == [0]


def test_ask_cuda__no_driver_an_old_one_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each says which."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    with pytest.raises(
        Unavailable, match=r"libcuda\.so\.1 cannot be loaded; found libcuda\.so\.1: cannot open.*--gpus"
    ):
        ask_cuda()
    old = standin.build("cuda.c", "libcuda.so.1", "cuDeviceGetUuid_v2", "cuGetErrorString")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(old))
    with pytest.raises(Unavailable, match="found cuDeviceGetUuid_v2: this driver does not have it"):
        ask_cuda()
    monkeypatch.setenv("CUDA_GPUS", "0")
    with pytest.raises(Unavailable, match=r"found cuInit: CUDA_ERROR_NO_DEVICE \(100\)"):
        ask_cuda(environ=dict(os.environ))
