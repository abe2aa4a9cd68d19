# SPDX-License-Identifier: Apache-2.0
"""Which of HIP's devices is which, and every way HIP can fail to say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Child = Callable[..., str]
TWO = "0000:05:00.0,0000:26:00.0"
CPX = ",".join(["0000:05:00.0"] * 8 + ["0000:26:00.0"])
CODE = """
    from pathlib import Path
    from dpfedge.backend.api import Device
    from dpfedge_rocm import hip
    hip._SECONDS = 1.0
    def device(pci, partition=0, partitions=1):
        facts = {"pci": pci, "partition": partition, "partitions": partitions}
        return Device("rocm:0", "rocm", "gpu.amd", "x", "gfx942", frozenset(), 1, facts=facts)
"""


def test_number__is_found_by_address(child: Child) -> None:
    """Not by the kernel's order: a variable may have hidden or reordered devices."""
    code = (
        CODE + "    print(*(hip.number_of(device(at)) for at in ('0000:26:00.0', '0000:05:00.0')), hip.hip().version())"
    )

    assert child(code, "hip.c", STANDIN_HIP=TWO) == "1 0 7.1"
    assert child(code, "hip.c", STANDIN_HIP="0000:26:00.0,0000:05:00.0") == "0 1 7.1"


@pytest.mark.parametrize("addresses", [CPX, ",".join([*(f"0000:05:00.{part}" for part in range(8)), "0000:26:00.0"])])
def test_number__of_a_partition(child: Child, addresses: str) -> None:
    """Its place among those at the GPU's address, whether or not each is told with a function of its own."""
    code = CODE + "    print(*(hip.number_of(device('0000:05:00.0', part, 8)) for part in (0, 3, 7)))"

    assert child(code, "hip.c", STANDIN_HIP=addresses) == "0 3 7"


@pytest.mark.parametrize(
    ("addresses", "call", "found"),
    [
        ("0000:05:00.0", "device('0000:26:00.0')", "0 of 1 at that address; it shows 0000:05:00.0"),
        ("", "device('0000:05:00.0')", "0 of 1 at that address; it shows no device"),
        (CPX[13:], "device('0000:05:00.0', 3, 8)", "7 of 8 at that address"),
    ],
)
def test_number__of_a_hidden_device(child: Child, addresses: str, call: str, found: str) -> None:
    """Another device is never taken in its place."""
    said = child(CODE + f"    hip.number_of({call})", "hip.c", STANDIN_HIP=addresses)

    assert said.startswith("dpfedge.errors.Unavailable: backend rocm: rocm:0 at ")
    assert found in said
    assert "HIP_VISIBLE_DEVICES" in said


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("hipGetDeviceCount=3", "BackendError: backend rocm: hipGetDeviceCount failed; found 3, invalid argument"),
        ("hipDeviceGetPCIBusId=101", "BackendError: backend rocm: hipDeviceGetPCIBusId failed; found 101"),
        ("hipGetDeviceCount=hang", "Unavailable: backend rocm: the HIP runtime: the library does not answer"),
    ],
)
def test_hip__error_of_each_call_is_named(child: Child, fails: str, said: str) -> None:
    """Within a bound when it hangs."""
    assert said in child(CODE + "    hip.number_of(device('0000:05:00.0'))", "hip.c", STANDIN=fails)


def test_hip__that_is_missing_or_old(child: Child) -> None:
    """Named, with what to install."""
    code = CODE + "    hip.hip()"
    missing = child(code)
    assert "Unavailable: backend rocm: the HIP runtime cannot be loaded; found libamdhip64.so.7: cannot open" in missing
    old = child(code, "hip.c", without=("hipRuntimeGetVersion",))
    assert "the HIP runtime is too old; found libamdhip64.so.7 without hipRuntimeGetVersion" in old


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("crash", "loading it ends the process by signal 11"),
        ("exit", "loading it ends the process (0)"),
        ("hang", "loading it takes more than 1 s"),
    ],
)
def test_hip__that_cannot_be_loaded_and_lived_with(child: Child, what: str, words: str) -> None:
    """A child tries it first."""
    code = "    from dpfedge.backend import loader; loader._TIMEOUT_S = 1.0"
    said = child(f"{CODE}{code}\n    hip.hip()", "hip.c", STANDIN=f"load={what}")

    assert f"the HIP runtime cannot be loaded; found libamdhip64.so.7: {words}; install" in said


def test_synchronise__says_what_failed(child: Child) -> None:
    """An error of work before shows there."""
    code = CODE + "    hip.hip().synchronise(0); print('done')"

    assert child(code, "hip.c") == "done"
    assert "hipDeviceSynchronize failed; found 719" in child(code, "hip.c", STANDIN="hipDeviceSynchronize=719")
