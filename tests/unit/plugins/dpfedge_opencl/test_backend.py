# SPDX-License-Identifier: Apache-2.0
"""The backend's face: cheap to import, capabilities by what memory the device shares, identities from facts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dpfedge_opencl import OpenClBackend
from made_plans import a_device

from dpfedge.backend.registry import Registry


def test_plugin__loads_no_driver() -> None:
    """Registering it imports neither pyopencl nor NumPy's larger parts, so other boards pay nothing for it."""
    code = (
        "import sys; from dpfedge.backend.registry import Registry; r = Registry.load(['opencl']); "
        "print(r.names(), sorted(m for m in sys.modules if m in ('pyopencl', 'onnx', 'onnxruntime')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split("]")[0].count("opencl") == 1
    assert done.stdout.strip().endswith("[]")
    assert "opencl" in Registry.load(["opencl"]).names()


def test_capabilities__say_whether_memory_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that shares nothing but its own memory copies, and says so."""
    backend, device = OpenClBackend(), a_device()
    assert backend.capabilities(replace(device, facts={"in_place": True})).arena_in_place
    assert not backend.capabilities(replace(device, facts={})).arena_in_place
    monkeypatch.setenv("DPFEDGE_OPENCL_MEMORY", "alloc_host_ptr")
    assert not backend.capabilities(replace(device, facts={"in_place": True})).arena_in_place


def test_identity__changes_with_the_driver() -> None:
    """And with the device; nothing of it needs the library."""
    backend, device = OpenClBackend(), a_device()
    base = backend.identity(device)
    assert base == backend.identity(device)
    for changed in (
        replace(device, facts={**device.facts, "driver": "9"}), replace(device, arch="other"),
        replace(device, facts={**device.facts, "platform_version": "9"}),
    ):  # fmt: skip
        assert backend.identity(changed) != base
    assert backend.devices(Path("/nonexistent")) == []
