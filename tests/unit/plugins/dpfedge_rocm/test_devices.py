# SPDX-License-Identifier: Apache-2.0
"""Devices of recorded machines: whole GPUs, partitions, and machines where something is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dpfedge_rocm import devices as module
from dpfedge_rocm.devices import find_devices, visible

from dpfedge.errors import Unavailable

MACHINES = Path(__file__).parents[3] / "fixtures/machines"
V300, V325 = 206141652992, 274861129728


@pytest.mark.parametrize(
    ("machine", "wanted"),
    [
        ("mi300x", [(f"rocm:{index}", "gfx942", "AMD Instinct MI300X", V300) for index in range(2)]),
        ("mi325x", [("rocm:0", "gfx942", "AMD Instinct MI325X", V325)]),
        ("mi250", [(f"rocm:{index}", "gfx90a", "AMD Instinct MI250", 68702699520) for index in range(2)]),
        ("mi300x-cpx", [
            *((f"rocm:{part}", "gfx942", f"AMD Instinct MI300X partition {part}", V300 // 8) for part in range(8)),
            ("rocm:8", "gfx942", "AMD Instinct MI300X", V300),
        ]),
        ("h100", []),
        ("orin-agx", []),
    ],
)  # fmt: skip
def test_devices__of_a_machine(machine: str, wanted: list[tuple[str, str, str, int]]) -> None:
    """One for each GPU or partition; the target does not tell MI300X from MI325X, the name does."""
    found = find_devices(MACHINES / machine)

    assert [(one.id, one.arch, one.name, one.memory_bytes) for one in found] == wanted
    assert {(one.backend, one.kind) for one in found} <= {("rocm", "gpu.amd")}


def test_devices__of_partitions_have_their_own_render_node() -> None:
    """And the GPU's PCI address, where errors are counted."""
    found = find_devices(MACHINES / "mi300x-cpx")

    assert [one.facts["render"] for one in found] == [*range(128, 137)]
    assert [(one.facts["partition"], one.facts["partitions"]) for one in found][-2:] == [(7, 8), (0, 1)]
    assert {one.facts["pci"] for one in found} == {"0000:05:00.0", "0000:26:00.0"}
    assert {one.facts["compute_partition"] for one in found[:8]} == {"CPX"}
    assert (found[0].facts["units"], found[8].facts["units"]) == (38, 304)
    assert all(one.facts["xgmi"] and one.facts["id"] == "1002:74a1" for one in found)


@pytest.mark.parametrize(
    ("environ", "left"),
    [
        ({}, [0, 1]),
        ({"ROCR_VISIBLE_DEVICES": "1"}, [1]),
        ({"HIP_VISIBLE_DEVICES": "1,0"}, [0, 1]),
        ({"HIP_VISIBLE_DEVICES": ""}, []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, []),
        ({"HIP_VISIBLE_DEVICES": "0,7,1"}, [0]),
        ({"HIP_VISIBLE_DEVICES": "all"}, []),
        ({"HIP_VISIBLE_DEVICES": "9" * 5000}, []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [0]),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"}, []),
        ({"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "0"}, [1]),
        ({"GPU_DEVICE_ORDINAL": "1"}, [1]),
        ({"ROCR_VISIBLE_DEVICES": "GPU-4b2c1a9f8d3e6f7a"}, [0, 1]),
    ],
)
def test_visible__that_the_environment_leaves(environ: dict[str, str], left: list[int]) -> None:
    """By number, one variable after the other; of UUIDs no file tells, and HIP is asked later."""
    both = find_devices(MACHINES / "mi300x")

    assert [both.index(one) for one in visible(both, environ)] == left


def test_devices__without_kfd(tmp_path: Path) -> None:
    """amdgpu is not loaded: the GPUs are named, and what to do."""
    shutil.copytree(MACHINES / "mi300x/sys/bus", tmp_path / "sys/bus")

    with pytest.raises(Unavailable, match=r"no AMD GPU has a KFD node; found AMD Instinct MI300X \(0000:05:00.0\)"):
        find_devices(tmp_path)


def test_devices__of_an_empty_root(tmp_path: Path) -> None:
    """None."""
    assert find_devices(tmp_path) == []


@pytest.mark.parametrize(("mode", "what"), [(None, "is missing"), (0o000, "may not be opened by this user")])
def test_rights__to_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None, what: str) -> None:
    """On this machine a missing or closed /dev/kfd is told before HIP says that there is no device."""
    kfd = tmp_path / "kfd"
    if mode is not None:
        kfd.touch(mode)
        monkeypatch.setattr("os.access", lambda path, _: str(path) != str(kfd))
    monkeypatch.setattr(module, "_KFD", str(kfd))
    devices = find_devices(MACHINES / "mi300x")

    with pytest.raises(Unavailable, match=f"the device node {what}; found {kfd}"):
        module._check_rights(devices)
