# SPDX-License-Identifier: Apache-2.0
"""Device tree and DMI names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpfedge.hardware.source.devicetree import DeviceTree, read_device_tree, read_dmi
from dpfedge.hardware.source.root import Root

Record = Callable[[str], Path]


def test_tree__lists_every_name(record: Record) -> None:
    """Names keep their order."""
    assert read_device_tree(Root(record("rk3588"))) == DeviceTree(("radxa,rock-5b", "rockchip,rk3588"), "Radxa ROCK 5B")


def test_tree__behind_the_firmware_folder(tmp_path: Path) -> None:
    """A root whose /proc link leaves it is read at the link's usual target."""
    base = tmp_path / "sys/firmware/devicetree/base"
    base.mkdir(parents=True)
    (base / "compatible").write_bytes(b"fsl,imx95\0")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/device-tree").symlink_to("/sys/firmware/devicetree/base")

    assert read_device_tree(Root(tmp_path)) == DeviceTree(("fsl,imx95",), "")


def test_tree__none_on_a_pc(record: Record) -> None:
    """A machine with DMI has no device tree."""
    root = Root(record("h100"))

    assert read_device_tree(root) is None
    assert read_dmi(root) == {"vendor": "Supermicro", "product": "SYS-821GE-TNHR"}
