# SPDX-License-Identifier: Apache-2.0
"""The CPU backend as dpfedge sees it: one device, its capabilities, its refusals, its health."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from dpfedge_cpu import CpuBackend, dpfedge_register_backends

from dpfedge.backend.api import ABI, Backend, Budget, Device, GraphView
from dpfedge.errors import Unavailable, Unsupported
from dpfedge.tensors import DTYPES

Record = Callable[[str], Path]


def test_plugin__offers_one_backend() -> None:
    """It is what the contract asks for, at the contract's version."""
    offered: list[Backend] = []
    dpfedge_register_backends(SimpleNamespace(add=offered.append))

    (one,) = offered
    assert (one.name, one.abi) == ("cpu", ABI)
    assert all(hasattr(one, name) for name in ("devices", "capabilities", "lower", "finish", "load", "health"))


@pytest.mark.parametrize(
    ("machine", "kind", "arch", "feature"),
    [
        ("rk3588", "cpu.aarch64", "armv8.2-a", "dotprod"),
        ("x86", "cpu.x86_64", "x86-64-v3", "avx2"),
        ("host", "cpu.x86_64", "x86-64-v2", ""),
    ],
)
def test_devices__are_the_machines_cpus_as_one(
    record: Record, machine: str, kind: str, arch: str, feature: str
) -> None:
    """Read below the root that is given; memory is the machine's own."""
    (device,) = CpuBackend().devices(record(machine))

    assert (device.id, device.backend, device.kind, device.arch) == ("cpu:0", "cpu", kind, arch)
    assert not feature or feature in device.features
    assert device.unified_memory
    assert device.memory_bytes > 2**30
    assert device.facts["cores"] >= 1


def test_listing__imports_no_onnxruntime() -> None:
    """`dpfedge backends` stays cheap."""
    code = (
        "import sys; from pathlib import Path; from dpfedge_cpu import CpuBackend; CpuBackend().devices(Path('/'));"
        "sys.exit(str(sorted({'onnxruntime', 'onnx'} & set(sys.modules)) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr.strip() == ""


def test_capabilities__name_known_types_only(here: Device) -> None:
    """Shapes may change, tensors stay where they are."""
    found = CpuBackend().capabilities(here)

    assert found.dtypes <= set(DTYPES)
    assert found.dynamic_shapes
    assert found.arena_in_place
    assert not found.seals


def test_load__refuses_a_graph_laid_out_for_another_cpu(here: Device) -> None:
    """Before onnxruntime sees it; both are named, and what to do."""
    graph: GraphView = SimpleNamespace(name="encoder", options={"arch": "armv9.9-a"})  # type: ignore[assignment]

    with pytest.raises(Unsupported, match=rf"graph encoder.*found {here.arch}; allowed armv9.9-a; compile"):
        CpuBackend().load(graph, here, Budget(threads=1, cores=()))


def test_health__is_two_shares(here: Device) -> None:
    """Between nothing and all."""
    found = CpuBackend().health(here)

    assert 0 <= found.utilisation <= 1
    assert 0 < found.free_memory <= 1


@pytest.fixture
def here() -> Device:
    """This machine's device."""
    return CpuBackend().devices(Path("/"))[0]


def test_devices__of_a_cpu_that_is_told_wrongly(monkeypatch: pytest.MonkeyPatch, record: Record) -> None:
    """No device is better than a process that ends by SIGILL; the error says which text is wrong."""
    monkeypatch.setattr("dpfedge.backend.cpu_facts.false_text", lambda arch, root: "it describes x86_64")

    with pytest.raises(
        Unavailable, match=r"of another CPU than this one; found it describes x86_64; allowed aarch64 with"
    ):
        CpuBackend().devices(record("orin"))
