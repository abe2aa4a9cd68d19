# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs and the KFD topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.amdgpu import gfx_name, read_amd
from dpfedge.hardware.source.pci import PciDevice
from dpfedge.hardware.source.root import Root

MI300X = PciDevice("0000:05:00.0", "1002:74a1", "AMD Instinct MI300X")


def lay(root: Path, *nodes: str) -> Root:
    """KFD nodes with these properties."""
    for index, text in enumerate(nodes):
        place = root / f"sys/class/kfd/kfd/topology/nodes/{index}"
        place.mkdir(parents=True)
        (place / "properties").write_text(text)
    return Root(root)


@pytest.mark.parametrize(
    ("version", "name"), [(90402, "gfx942"), (90010, "gfx90a"), (90500, "gfx950"), (110501, "gfx1151")]
)
def test_gfx_name__stepping_is_hexadecimal(version: int, name: str) -> None:
    """Two decimal digits each become one of the name."""
    assert gfx_name(version) == name


def test_amd__one_node(tmp_path: Path) -> None:
    """Node and bus address find each other; a driver of the kernel has the kernel's version."""
    root = lay(
        tmp_path, "gfx_target_version 0\n", "gfx_target_version 90402\nlocation_id 1280\ndomain 0\nunique_id 7\n"
    )
    place = tmp_path / "sys/bus/pci/devices/0000:05:00.0"
    place.mkdir(parents=True)
    (place / "mem_info_vram_total").write_text("206141652992\n")

    [gpu] = read_amd(root, [MI300X], "6.8.0")
    assert (gpu.kind, gpu.arch, gpu.memory_bytes, gpu.parts) == ("gpu.amd", "gfx942", 206141652992, ())
    assert gpu.drivers == {"amdgpu": "6.8.0"}


def test_amd__partitions_are_counted(tmp_path: Path) -> None:
    """Several nodes at one address are one GPU in parts; the module's own version counts before the kernel's."""
    root = lay(tmp_path, *["gfx_target_version 90402\nlocation_id 1280\n"] * 4)
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    (tmp_path / "sys/module/amdgpu/version").write_text("6.10.5\n")

    [gpu] = read_amd(root, [MI300X], "6.8.0")
    assert len(gpu.parts) == 4
    assert gpu.drivers == {"amdgpu": "6.10.5"}


def test_amd__without_its_driver(tmp_path: Path) -> None:
    """The bus alone tells the name, not the architecture."""
    [gpu] = read_amd(Root(tmp_path), [MI300X], "6.8.0")

    assert (gpu.name, gpu.arch, gpu.drivers) == ("AMD Instinct MI300X", None, {})


@pytest.mark.parametrize(
    "text", ["", "gfx_target_version", "gfx_target_version x\n", "gfx_target_version 9" + "0" * 40]
)
def test_amd__broken_properties(tmp_path: Path, text: str) -> None:
    """What is no number is as if it were not there."""
    [gpu] = read_amd(lay(tmp_path, text), [MI300X], None)

    assert gpu.arch is None
