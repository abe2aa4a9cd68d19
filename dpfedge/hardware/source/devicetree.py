# SPDX-License-Identifier: Apache-2.0
"""What firmware calls the machine: the device tree's root or the DMI table in, their names out.

It reads no EEPROM and does not tell modules of one name apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["DeviceTree", "read_device_tree", "read_dmi"]

_TREES = ("proc/device-tree", "sys/firmware/devicetree/base")
_DMI = {"vendor": "sys_vendor", "product": "product_name", "board": "board_name", "bios": "bios_version"}


@dataclass(frozen=True, slots=True)
class DeviceTree:
    """The root of the device tree: `compatible` from the most to the least specific name."""

    compatible: tuple[str, ...]
    model: str


def read_device_tree(root: Root) -> DeviceTree | None:
    """The root node's names, or None on a machine without a device tree."""
    for tree in _TREES:
        if compatible := root.texts(f"{tree}/compatible"):
            return DeviceTree(compatible, " ".join(root.texts(f"{tree}/model")))
    return None


def read_dmi(root: Root) -> Mapping[str, str]:
    """`vendor`, `product`, `board` and `bios` as far as the firmware fills them in."""
    texts = {name: root.text(f"sys/class/dmi/id/{file}") for name, file in _DMI.items()}
    return {name: label(text) for name, text in texts.items() if text}
