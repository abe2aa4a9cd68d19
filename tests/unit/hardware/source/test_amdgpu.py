# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs and the KFD topology."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.probe import probe
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


@pytest.mark.parametrize("shift", [28, 0])
def test_amd__partition_is_part_of_its_place(tmp_path: Path, shift: int) -> None:
    """In bits 28 to 31, or in older kernels where the function stands; the tenth node is behind the second."""
    nodes = [f"gfx_target_version 90402\nlocation_id {0x500 | part << shift}\nsimd_count 152\nsimd_per_cu 4\n"
             f"drm_render_minor {128 + part}\n" for part in range(8)]  # fmt: skip
    root = lay(tmp_path, "gfx_target_version 0\n", "gfx_target_version 0\n", "", *nodes)

    [gpu] = read_amd(root, [MI300X], None)
    assert gpu.parts == tuple(f"partition {part}" for part in range(8))
    told = [(node["index"], node["partition"], node["node"], node["render"]) for node in gpu.facts["nodes"]]
    assert told == [(part, part, part + 3, part + 128) for part in range(8)]
    assert {node["units"] for node in gpu.facts["nodes"]} == {38}


def test_amd__modes_and_links_of_a_recorded_machine() -> None:
    """The first GPU in eight parts, the second whole; XGMI links where they are."""
    machines = Path(__file__).parents[3] / "fixtures/machines"
    split, whole = (gpu.facts for gpu in probe(machines / "mi300x-cpx").accelerators)
    assert (split["compute_partition"], split["memory_partition"], split["hive"]) == ("CPX", "NPS1", True)
    assert [node["memory_bytes"] for node in split["nodes"]] == [206141652992 // 8] * 8
    assert (whole["compute_partition"], [node["index"] for node in whole["nodes"]]) == ("SPX", [8])
    first, second = (gpu.facts["nodes"][0] for gpu in probe(machines / "mi300x").accelerators)
    assert (first["links"], second["links"], first["units"]) == ((3,), (2,), 304)


def test_amd__device_id_tells_mi325x_from_mi300x() -> None:
    """One code target, two parts."""
    machines = Path(__file__).parents[3] / "fixtures/machines"
    found = {name: probe(machines / name).accelerators[0] for name in ("mi300x", "mi325x")}

    assert {gpu.arch for gpu in found.values()} == {"gfx942"}
    assert {name: (gpu.facts["id"], gpu.name) for name, gpu in found.items()} == {
        "mi300x": ("1002:74a1", "AMD Instinct MI300X"), "mi325x": ("1002:74a5", "AMD Instinct MI325X"),
    }  # fmt: skip
