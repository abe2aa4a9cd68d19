# SPDX-License-Identifier: Apache-2.0
"""What is looked at on a machine with a GPU, here over stand-ins: that the checks themselves are right."""

from __future__ import annotations

import pytest
import standin
from dpfedge_cuda.memory import CudaMemory
from dpfedge_cuda.verify import EXPECTED, UNSUPPORTED, checks
from standing import DEVICE, StandInBackend, stand_in_driver

from dpfedge.testing.cases import cases


def test_checks__pass_and_say_what_they_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory, resident memory, streams."""
    with stand_in_driver(monkeypatch) as folder:
        paths = f"{folder}:{standin.build('nvml.c', 'libnvidia-ml.so.1')}"
        monkeypatch.setenv("LD_LIBRARY_PATH", paths)
        found = dict(checks(StandInBackend(), DEVICE))
    assert "clock 1410, clock_most 1980, power 251500" in found["what NVML tells"]
    assert found["pinned link memory"] == "8 runs without a copy, captured as a CUDA graph"
    assert "never copied" in found["memory that stays on the device"]
    assert "same bytes" in found["urgent and patient streams"]


def test_checks__fail_where_memory_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first that does not hold is raised."""
    with stand_in_driver(monkeypatch):
        monkeypatch.setattr(CudaMemory, "hold", lambda self, array: None)
        monkeypatch.setattr(StandInBackend, "nvml", lambda self, device: {})
        with pytest.raises(AssertionError, match="not in the device's reach"):
            list(checks(StandInBackend(), DEVICE))


def test_lists__name_tests_of_the_suite() -> None:
    """A pattern that fits nothing would hide a mistake."""
    names = [f"op/{case.name}" for case in cases()]
    for pattern in UNSUPPORTED:
        assert any(name.startswith(pattern.rstrip("*")) for name in names), pattern
    assert set(EXPECTED) == {"cache"}
