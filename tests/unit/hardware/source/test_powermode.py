# SPDX-License-Identifier: Apache-2.0
"""The power mode: nvpmodel's files and the platform profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.hardware.source.powermode import PowerModes, read_power_mode, read_power_modes
from dpfedge.hardware.source.root import Root

CONF = """
# NVIDIA
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_0 1
< POWER_MODEL ID=1 NAME=25W >
< POWER_MODEL ID=2 NAME=MAXN_SUPER >
< PM_CONFIG DEFAULT=1 >
"""


def lay(root: Path, path: str, text: str) -> None:
    """Write one file below the root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def read(root: Path) -> tuple[str | None, tuple[str, ...]]:
    """The mode and the names of all."""
    source = Root(root)
    modes = read_power_modes(source)
    return read_power_mode(source, modes), modes.names


@pytest.mark.parametrize("status", ["pmode:0002 fmode:cool", "pmode:0002\n", "fmode:quiet pmode:0002"])
def test_nvpmodel__number_becomes_the_boards_name(tmp_path: Path, status: str) -> None:
    """The configuration of this very board says what the number means; its file is a link on a real one."""
    lay(tmp_path, "etc/nvpmodel/nvpmodel_p3767_0003_super.conf", CONF)
    (tmp_path / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel/nvpmodel_p3767_0003_super.conf")
    lay(tmp_path, "var/lib/nvpmodel/status", status)

    assert read(tmp_path) == ("MAXN_SUPER", ("15W", "25W", "MAXN_SUPER"))


def test_nvpmodel__without_a_name(tmp_path: Path) -> None:
    """A number that nothing explains stays a number."""
    lay(tmp_path, "var/lib/nvpmodel/status", "pmode:0007")

    assert read(tmp_path) == ("7", ())


def test_profile__of_the_firmware(tmp_path: Path) -> None:
    """Where there is no nvpmodel."""
    lay(tmp_path, "sys/firmware/acpi/platform_profile", "low-power\n")
    lay(tmp_path, "sys/firmware/acpi/platform_profile_choices", "low-power balanced performance\n")

    assert read(tmp_path) == ("low-power", ("low-power", "balanced", "performance"))


@pytest.mark.parametrize("status", ["", "mode 3", "pmode:", "pmode:99999"])
def test_mode__that_nobody_tells(tmp_path: Path, status: str) -> None:
    """No file, or no mode in it."""
    assert read(tmp_path) == (None, ())
    lay(tmp_path, "var/lib/nvpmodel/status", status)

    assert read(tmp_path) == (None, ())
    assert read_power_modes(Root(tmp_path)) == PowerModes()
