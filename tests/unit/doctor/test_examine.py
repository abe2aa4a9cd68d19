# SPDX-License-Identifier: Apache-2.0
"""All checks together: who is concerned decides what is a fault; distributions here are fakes."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.backend.api import ABI
from dpfedge.backend.registry import Registry
from dpfedge.doctor.backends import list_devices
from dpfedge.doctor.examine import _reached, examine, exit_code
from dpfedge.doctor.surroundings import Surroundings
from dpfedge.hardware.source.root import Root

from .conftest import MACHINES, SOMEBODY, Install, machine


def registry(*names: str) -> Registry:
    """Backends with a device each."""
    made: Registry = Registry()
    for name in names:
        device = SimpleNamespace(id=f"{name}:0", arch="any", kind="cpu.x86_64")
        backend: Any = SimpleNamespace(
            name=name, abi=ABI, devices=lambda root, device=device: [device], health=lambda device: None
        )
        made.add(backend)
    return made


@pytest.mark.parametrize("name", sorted(path.name for path in MACHINES.iterdir() if path.is_dir()))
def test_examine__every_recorded_machine(name: str, install: Install) -> None:
    """With the CPU's backend alone, nothing that concerns a GPU is a fault."""
    found = examine(machine(name, install("onnxruntime", "1.32.0")), registry("cpu"))

    assert [one for one in found if one.level == "fault"] == []
    assert exit_code(found, registry("cpu")) == 0


def test_examine__a_fault_of_those_who_want_it(install: Install, tmp_path: Path) -> None:
    """No OpenCL driver on a Mali board: a warning, and a fault once somebody wants OpenCL."""
    root = tmp_path / "board"
    shutil.copytree(MACHINES / "rk3588", root, symlinks=True)
    (root / "usr/lib").mkdir(parents=True)
    board = Surroundings(Root(root), {}, (install("onnxruntime", "1.32.0"),), SOMEBODY)

    assert {one.level for one in examine(board, registry("cpu")) if one.check == "icd"} == {"warning"}
    wanted = registry("cpu", "opencl")
    assert {one.level for one in examine(board, wanted) if one.check == "icd"} == {"fault"}
    assert exit_code(examine(board, wanted), wanted) == 1


@pytest.mark.parametrize(("gpus", "expected"), [(set(), True), ({"gpu.arm"}, False)])
def test_reached__opencl_of_a_wheel(gpus: set[str], expected: bool) -> None:
    """A loader and a driver for CPUs that pip brought register nothing; of a GPU that is here they are not enough."""
    here, root = Surroundings(Root("/"), {}, ()), Path("/")
    both, alone = (list_devices(registry(*names), root, set(names)) for names in (("cpu", "opencl"), ("cpu",)))
    assert _reached(here, both, gpus) is expected
    assert not _reached(here, alone, gpus)
    assert not _reached(machine("rk3588"), both, gpus)


def test_examine__asks_each_backend_once() -> None:
    """A driver that hangs costs its bound once; of one backend, the others are not asked at all."""
    made, asked = registry("cpu"), list[str]()
    for name in ("slow", "other"):

        def devices(root: Path, name: str = name) -> list[Any]:
            asked.append(name)
            return []

        slow: Any = SimpleNamespace(name=name, abi=ABI, devices=devices)
        made.add(slow)

    examine(Surroundings(Root("/"), {}, ()), made)
    assert sorted(asked) == ["other", "slow"]
    examine(Surroundings(Root("/"), {}, ()), made, "slow")
    assert sorted(asked) == ["other", "slow", "slow"]


def test_examine__one_backend(install: Install) -> None:
    """Of others nothing is said; without a plugin for it the exit code says so, too."""
    board = machine("rk3588", install("onnxruntime-gpu", "1.31.1"), CUDA_VISIBLE_DEVICES="all")
    found = examine(board, registry("cpu"), "opencl")

    assert {name for one in found for name in one.backends} == {"opencl"}
    assert "fault: backend opencl: no plugin brings it; pip install dpfedge-opencl" in [str(one) for one in found]
    assert exit_code(found, registry("cpu"), "opencl") == 5
    assert exit_code((), registry("cpu"), "cpu") == 0


def test_examine__without_onnxruntime(install: Install) -> None:
    """The CPU's backend needs it; faults come first."""
    found = examine(machine("h100", install("numpy", "2.0", files=[]), CUDA_VISIBLE_DEVICES=""), registry("cpu"))

    assert found[0].what == "it is not installed"
    assert [one.level for one in found] == sorted([one.level for one in found], key=["fault", "warning", "note"].index)
