# SPDX-License-Identifier: Apache-2.0
"""Devices by what drivers and files say of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from dpfedge_opencl import devices
from dpfedge_opencl.devices import devices_of
from made_plans import a_device

from dpfedge.errors import Unavailable

MACHINES = Path(__file__).parents[3] / "fixtures" / "machines"
LISTED = {
    "platform": "ARM Platform", "platform_version": "OpenCL 3.0 v1.g24p0", "name": "Mali-G610 r0p0", "vendor": "ARM",
    "version": "OpenCL 3.0 v1.g24p0-00eac0", "driver": "3.0", "type": "gpu", "memory_bytes": 8 << 30, "unified": True,
    "extensions": ["cl_khr_fp16", "cl_arm_import_memory"], "compiler": True,
}  # fmt: skip


def _listed(monkeypatch: pytest.MonkeyPatch, *rows: dict[str, Any]) -> None:
    monkeypatch.setattr(devices, "here", lambda: [{**LISTED, **row} for row in rows])


@pytest.mark.parametrize(
    ("row", "kind", "arch"),
    [
        ({}, "gpu.arm", "mali-g610"),
        ({"name": "Mali-LODX r0p0"}, "gpu.arm", "mali-g610"),
        ({"name": "Mali-G720-Immortalis r0p0"}, "gpu.arm", "mali-g720"),
        ({"name": "QUALCOMM Adreno(TM)", "version": "OpenCL 3.0 Adreno(TM) 740"}, "gpu.qualcomm", "adreno-740"),
        ({"name": "NVIDIA A10", "vendor": "NVIDIA Corporation"}, "gpu.nvidia", "nvidia-a10"),
        ({"name": "?", "vendor": "unheard of"}, "gpu.other", "unknown"),
    ],
)
def test_device__class_and_architecture(monkeypatch: pytest.MonkeyPatch, row: Any, kind: str, arch: str) -> None:
    """By the name a driver gives, where that is one of a family, else by its vendor."""
    _listed(monkeypatch, row)
    (device,) = devices_of(Path("/"))
    assert (device.kind, device.arch) == (kind, arch)
    assert device.features == {"fp16", "unified_memory"}
    assert device.facts["in_place"]


def test_device__that_cannot_be_used_keeps_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids count what the library lists; one without a compiler or of an old OpenCL is left out, with the reason if it
    was the only one."""
    _listed(monkeypatch, {"compiler": False}, {"version": "OpenCL 1.1 old"}, {})
    assert [device.id for device in devices_of(Path("/"))] == ["opencl:2"]
    _listed(monkeypatch, {"compiler": False}, {"version": "OpenCL 1.1 old"})
    with pytest.raises(Unavailable, match=r"has no compiler; .* kernels need 1\.2"):
        devices_of(Path("/"))


@pytest.mark.parametrize(("program", "how"), [("true", "exit status 0"), ("false", "exit status 1")])
def test_listing__by_a_driver_that_ends_the_process(monkeypatch: pytest.MonkeyPatch, program: str, how: str) -> None:
    """Also as if all were well: nobody answered, and that is named with what to do."""
    monkeypatch.setattr(devices, "sys", SimpleNamespace(executable=program))
    devices._listed.cache_clear()
    with pytest.raises(Unavailable, match=f"fails while it lists devices; found {how}: no word of why; reinstall the "):
        devices._listed("this test")


def test_device__of_this_machines_cpu() -> None:
    """Through PoCL it is a CPU of this level, with the CPU's instructions as features."""
    device = a_device()
    if device.facts["type"] != "cpu":
        pytest.skip("not a CPU")
    assert device.kind.startswith("cpu.")
    assert device.facts["in_place"]


@pytest.mark.parametrize(("machine", "arch"), [("rk3588", "mali-g610"), ("imx95", "mali-g310")])
def test_recorded__by_files_alone(monkeypatch: pytest.MonkeyPatch, machine: str, arch: str) -> None:
    """No library is asked; a machine without such a GPU has no device."""
    monkeypatch.setattr(devices, "here", lambda: pytest.fail("asked this machine"))
    (device,) = devices_of(MACHINES / machine)
    assert (device.kind, device.arch, device.unified_memory) == ("gpu.arm", arch, True)
    assert device.drivers
    assert devices_of(MACHINES / "h100") == []


def test_node__without_permission_names_the_group(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Before any library is loaded."""
    node = tmp_path / "mali0"
    node.touch()
    monkeypatch.setattr(devices, "_NODES", (str(node),))
    monkeypatch.setattr(devices.os, "access", lambda *_: False)
    with pytest.raises(Unavailable, match=r"no permission .*mali0.*group"):
        devices_of(Path("/"))
