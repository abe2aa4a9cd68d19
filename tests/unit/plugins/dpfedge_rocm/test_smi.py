# SPDX-License-Identifier: Apache-2.0
"""AMD SMI's own bindings over a stand-in of its library: what it tells, and every way it fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Child = Callable[..., str]
CODE = """
    import os
    from dpfedge_rocm.smi import Smi
    limit = float(os.environ.get("LIMIT", 20))
    smi = Smi("0000:26:00.0", limit, limit)
    print(smi.latest())
"""
TWO = "0000:05:00.0,0000:26:00.0"


@pytest.fixture(autouse=True)
def _bindings() -> None:
    from importlib.util import find_spec

    if find_spec("amdsmi") is None:
        pytest.skip("the package amdsmi is not installed")


def test_state__of_the_gpu_at_an_address(child: Child) -> None:
    """Load, heat and errors; a power limit that is reached is no throttling, and a sensor a part lacks is none."""
    assert child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN_CE="12", STANDIN_UE="1") == (
        "SmiState(utilisation=0.37, throttled=False, corrected=12, uncorrected=1)"
    )
    assert "throttled=True" in child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN_HOT="1")


def test_state__that_is_not_known_is_none(child: Child) -> None:
    """`N/A` in the bindings, which the library writes as all bits set; a call that this part lacks is nothing."""
    said = child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN_BUSY="65535", STANDIN_HOT="255",
                 STANDIN="amdsmi_get_gpu_total_ecc_count=2")  # fmt: skip

    assert said == "SmiState(utilisation=None, throttled=None, corrected=None, uncorrected=None)"


@pytest.mark.parametrize(
    ("call", "status", "text"),
    [
        ("amdsmi_init", 34, "AMDSMI_STATUS_DRIVER_NOT_LOADED"),
        ("amdsmi_get_lib_version", 1, "AMDSMI_STATUS_INVAL"),
        ("amdsmi_get_socket_handles", 10, "AMDSMI_STATUS_NO_PERM"),
        ("amdsmi_get_processor_handles", 10, "AMDSMI_STATUS_NO_PERM"),
        ("amdsmi_get_gpu_device_bdf", 31, "AMDSMI_STATUS_NOT_FOUND"),
        ("amdsmi_get_gpu_activity", 30, "AMDSMI_STATUS_BUSY"),
        ("amdsmi_get_violation_status", 12, "AMDSMI_STATUS_IO"),
        ("amdsmi_get_gpu_total_ecc_count", 7, "AMDSMI_STATUS_API_FAILED"),
        ("amdsmi_get_gpu_activity", 987, "AMDSMI_STATUS_UNKNOWN_ERROR"),
    ],
)
def test_error__of_each_call_is_named(child: Child, call: str, status: int, text: str) -> None:
    """With the library's own word for it."""
    said = child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN=f"{call}={status}")

    assert said.startswith("dpfedge.errors.BackendError: backend rocm: amdsmi: ")
    assert text in said
    assert "`amd-smi monitor` asks the same" in said


@pytest.mark.parametrize("call", ["load", "amdsmi_init", "amdsmi_get_violation_status"])
def test_hang__is_told_within_a_bound(child: Child, call: str) -> None:
    """The process goes on, and ends; also when loading the library hangs."""
    said = child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN=f"{call}=hang", LIMIT="1")

    assert "Unavailable: backend rocm: amdsmi: 0000:26:00.0: AMD SMI does not answer within 1 s" in said


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("load=crash", "by signal 11"),
        ("load=exit", "with status 0"),
        ("amdsmi_get_gpu_activity=crash", "by signal 11"),
    ],
)
def test_crash__costs_the_child_only(child: Child, what: str, words: str) -> None:
    """It is told how it ended."""
    said = child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN=what)

    assert f"Unavailable: backend rocm: amdsmi: 0000:26:00.0: AMD SMI ended the process that asked it {words}" in said


@pytest.mark.parametrize("what", ["print", "bytes", "fork"])
def test_state__of_a_library_that_does_other_things(child: Child, what: str) -> None:
    """What it prints is nothing it tells, and standard output stays this process's."""
    assert child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN=f"load={what}").startswith("SmiState(utilisation=0.37")


def test_library__that_is_missing(child: Child) -> None:
    """The bindings print and raise KeyError; nothing is printed here, and the reason is in the error."""
    said = child(CODE)

    assert "SmiMissing: backend rocm: amdsmi: its library cannot be loaded" in said
    assert "libamd_smi.so: cannot open shared object file" in said


def test_library__of_another_release(child: Child) -> None:
    """A symbol that is missing, or another version: structures would be read wrongly."""
    lacking = child(CODE, "amdsmi.c", without=("amdsmi_get_lib_version",))
    assert "the bindings and libamd_smi.so are of different releases; found" in lacking
    assert "amdsmi_get_lib_version" in lacking
    assert "bindings 7.0.2, library 24.0.2" in child(CODE, "amdsmi.c", STANDIN_GPUS=TWO, STANDIN_MAJOR="24")


def test_gpu__that_is_not_shown(child: Child) -> None:
    """Another one is never looked at in its place."""
    assert "it shows no such GPU" in child(CODE, "amdsmi.c", STANDIN_GPUS="0000:05:00.0")
