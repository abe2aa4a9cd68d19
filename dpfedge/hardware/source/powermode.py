# SPDX-License-Identifier: Apache-2.0
"""The power mode somebody chose for the machine: files in, its name and the names of all modes out; nothing is set.

On a Jetson it is what `nvpmodel` keeps in `/var/lib/nvpmodel/status`, with the names from `/etc/nvpmodel.conf`, because
the numbers mean something else on each board; elsewhere the firmware's platform profile, where there is one.
"""

from __future__ import annotations

import re

from dpfedge.hardware.source.root import Root, label
from dpfedge.records import dataclass

__all__ = ["PowerModes", "read_power_mode", "read_power_modes"]

_STATUS, _CONF = "var/lib/nvpmodel/status", "etc/nvpmodel.conf"
_PROFILE, _CHOICES = "sys/firmware/acpi/platform_profile", "sys/firmware/acpi/platform_profile_choices"
_PMODE = re.compile(r"pmode:([0-9]{1,4})\b")
# NVIDIA/skills: jetson-customize-nvpmodel: `< POWER_MODEL ID=2 NAME=MAXN_SUPER >`, one header in a line
_MODEL = re.compile(r"^\s*<\s*POWER_MODEL\s+ID=([0-9]{1,4})\s+NAME=([^\s>]{1,64})\s*>", re.MULTILINE)
_MODES_MAX = 64


@dataclass(frozen=True, slots=True)
class PowerModes:
    """What a machine can be set to. `numbers`: nvpmodel's number → name; `names` has all of them, of either kind."""

    numbers: tuple[tuple[int, str], ...] = ()
    names: tuple[str, ...] = ()


def read_power_modes(root: Root) -> PowerModes:
    """The modes there are; they change with an update of the system only."""
    numbers = [(int(number), label(name)) for number, name in _MODEL.findall(root.text(_CONF) or "")[:_MODES_MAX]]
    if numbers:
        return PowerModes(tuple(numbers), tuple(name for _, name in numbers))
    return PowerModes(names=tuple(label(name) for name in (root.text(_CHOICES) or "").split()[:_MODES_MAX]))


def read_power_mode(root: Root, modes: PowerModes) -> str | None:
    """The mode that is set now; nvpmodel's number in digits where no name is known, None where nobody tells."""
    match = _PMODE.search(root.text(_STATUS) or "")
    if match is not None:
        return dict(modes.numbers).get(int(match[1]), str(int(match[1])))
    return label(root.text(_PROFILE) or "") or None
