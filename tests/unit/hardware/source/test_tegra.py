# SPDX-License-Identifier: Apache-2.0
"""The GPU inside a Tegra, and the releases of its software."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.tegra import Module, find_module, read_releases, read_tegra

ORIN = ("nvidia,p3737-0000+p3701-0000", "nvidia,tegra234")


@pytest.mark.parametrize(
    ("line", "releases"),
    [
        ("# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n", {"l4t": "36.4.3", "jetpack": "6.2"}),
        ("# R38 (release), REVISION: 2.1, GCID: 1\n", {"l4t": "38.2.1", "jetpack": "7.0"}),
        ("# R35 (release), REVISION: 4.1, GCID: 1\n", {"l4t": "35.4.1"}),
        ("# R99 (release), REVISION: 0.0\n# KERNEL_VARIANT: oot\n", {"l4t": "99.0.0"}),
        ("# R36 (beta)\n", {}),
        ("", {}),
    ],
)
def test_releases__only_what_is_known(tmp_path: Path, line: str, releases: dict[str, str]) -> None:
    """JetPack is named where its number for that release is known exactly."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text(line)

    assert read_releases(Root(tmp_path), ORIN) == releases
    assert read_releases(Root(tmp_path), ("rockchip,rk3588",)) == {}


@pytest.mark.parametrize(
    ("chip", "arch"),
    [
        ("tegra210", "sm_53"),
        ("tegra186", "sm_62"),
        ("tegra194", "sm_72"),
        ("tegra234", "sm_87"),
        ("tegra264", "sm_110"),
    ],
)
def test_tegra__each_chip_has_its_gpu(chip: str, arch: str) -> None:
    """The chip stands last in the list, behind boards of whatever vendor."""
    [gpu] = read_tegra(("acme,carrier", f"nvidia,{chip}"), {"l4t": "36.4.3"})

    assert (gpu.arch, gpu.place, gpu.unified_memory, gpu.drivers) == (arch, chip, True, {"l4t": "36.4.3"})
    assert read_tegra(("acme,carrier",), {}) == ()


@pytest.mark.parametrize(
    ("names", "module"),
    [
        (ORIN, Module("p3701-0000", "AGX Orin", 2)),
        (("acme,box", "nvidia,p3768-0000+p3767-0001-super"), Module("p3767-0001", "Orin NX 8GB", 1, boosted=True)),
        (("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
         Module("p3767-0005", "Orin Nano developer kit", 0, boosted=True)),
        (("acme,p3767-0000", "nvidia,tegra234"), None),
        (("nvidia,p9999-0000", "nvidia,tegra234"), None),
        ((), None),
    ],
)  # fmt: skip
def test_module__is_named_by_any_entry(names: tuple[str, ...], module: Module | None) -> None:
    """The carrier's own name, of whatever vendor, stands before it; another vendor's part of that number is none."""
    assert find_module(names) == module


def test_tegra__dlas_are_those_of_the_module() -> None:
    """One on the 8 GB Orin NX, none on an Orin Nano and none where the module is not known: none is made up."""
    found = read_tegra(("acme,box", "nvidia,p3768-0000+p3767-0001", "nvidia,tegra234"), {"l4t": "36.4.3"})

    assert [(one.kind, one.arch, one.place, one.facts) for one in found] == [
        ("gpu.nvidia", "sm_87", "tegra234", {"module": "Orin NX 8GB"}),
        ("dla.nvidia", "nvdla2", "nvdla0", {"module": "Orin NX 8GB", "core": 0}),
    ]
    for names in (("nvidia,p3767-0004", "nvidia,tegra234"), ("acme,box", "nvidia,tegra234")):
        assert [one.kind for one in read_tegra(names, {})] == ["gpu.nvidia"]
