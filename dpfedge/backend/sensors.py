# SPDX-License-Identifier: Apache-2.0
"""What a backend may know of a device at work from the kernel's files: a root in, load, heat, power and errors out.

Places are found once; `sample` reads a handful of small files and may be called many times a second. It is a door from
plugins to `dpfedge.hardware`, loads no vendor's library and sets nothing. What no file tells is None, never 0.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from dpfedge.hardware.source.amdsensors import AmdState, find_amd, read_amd_state
from dpfedge.hardware.source.memory import free_share, group_free, used_quotas
from dpfedge.hardware.source.powermode import read_power_mode, read_power_modes
from dpfedge.hardware.source.rails import find_rails, read_rail, total_watts
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.tegragpu import find_gpu, read_clock, read_load
from dpfedge.hardware.source.thermal import Zone, find_alerts, read_zone, read_zones, throttling
from dpfedge.records import dataclass

__all__ = ["AmdSensors", "AmdState", "GroupSensors", "GroupState", "TegraSensors", "TegraState", "free_memory"]

_GPU_ZONES = ("gpu-thermal", "GPU-therm", "tj-thermal")
"""Zones that are the GPU's, the best first; `tj` is the hottest place of the whole chip."""
_GROUPS_S = 1.0
"""Between two looks at cgroups: shorter, and a share would be of the bursts in which the kernel gives out a quota."""


def free_memory(sysroot: str | Path = "/") -> float | None:
    """Available over all memory of the machine, 0 to 1: what a device without memory of its own has. None: not told."""
    return free_share(Root(sysroot))


@dataclass(frozen=True, slots=True)
class GroupState:
    """What this process's cgroups, from its own up to the root, leave of a machine; None where they limit nothing."""

    utilisation: float | None = None
    """0 to 1, of the processor time that the tightest quota allows, in the last second; None at first."""
    memory_free: float | None = None
    """0 to 1, of the limit of which least is left; file pages that nobody used lately count as free."""


class GroupSensors:
    """The cgroups of this process; limits that change and a process that is moved are seen within a second."""

    def __init__(self, sysroot: str | Path = "/") -> None:
        self._root = Root(sysroot)
        self._last: tuple[float, Mapping[str, tuple[float, float]], GroupState] = (float("-inf"), {}, GroupState())

    def sample(self) -> GroupState:
        """At most a second old; from any thread."""
        at, before, state = self._last
        if (now := time.monotonic()) - at >= _GROUPS_S:
            used = used_quotas(self._root)
            shares = [
                (used_s - before[path][1]) / (cpus * (now - at))
                for path, (cpus, used_s) in used.items()
                if path in before
            ]
            busy = min(1.0, max(0.0, *shares)) if shares else None
            state = GroupState(busy, group_free(self._root))
            self._last = (now, used, state)
        return state


@dataclass(frozen=True, slots=True)
class TegraState:
    """One moment of a Tegra: of its GPU, and of the memory and the board they share."""

    utilisation: float | None = None
    """Busy share of the GPU, 0 to 1; None on Thor, where NVML has it, and while it is gated."""
    clock_hz: int | None = None
    memory_free: float | None = None
    temperature_c: float | None = None
    throttled: bool = False
    watts: float | None = None
    """What the whole board takes, by the rail that measures its input or else all rails together."""
    rails: Mapping[str, float] = field(default_factory=dict)
    """Rail → watts, of those that can be read."""
    power_mode: str | None = None
    """nvpmodel's name of the mode that is set (`MAXN`, `15W`)."""


class TegraSensors:
    """The sensors of a machine with a Tegra."""

    def __init__(self, sysroot: str | Path = "/") -> None:
        self._root = Root(sysroot)
        self._gpu, self._rails = find_gpu(self._root), find_rails(self._root)
        self._alerts, self._modes = find_alerts(self._root), read_power_modes(self._root)
        zones = {zone.name: zone for zone in read_zones(self._root, _GPU_ZONES)}
        self._zones = [zones[name] for name in _GPU_ZONES if name in zones]

    def sample(self) -> TegraState:
        """Load, clock, memory, heat and throttling now: what is asked often."""
        temperature, zone = self._temperature()
        over = zone is not None and zone.throttle_c is not None and (temperature or 0.0) >= zone.throttle_c
        return TegraState(
            utilisation=read_load(self._root, self._gpu),
            clock_hz=read_clock(self._root, self._gpu),
            memory_free=free_share(self._root),
            temperature_c=temperature,
            throttled=over or throttling(self._root, self._alerts),
        )

    def power(self) -> TegraState:
        """Rails, the whole board's watts and the power mode now; the monitors are asked over a slow bus."""
        read = {rail.name: read_rail(self._root, rail) for rail in self._rails}
        return TegraState(
            watts=total_watts(self._root, self._rails),
            rails={name: watts for name, watts in read.items() if watts is not None},
            power_mode=read_power_mode(self._root, self._modes),
        )

    def _temperature(self) -> tuple[float | None, Zone | None]:
        """Of the first zone that is awake: the GPU's own is gated while the GPU is."""
        for zone in self._zones:
            if (celsius := read_zone(self._root, zone)) is not None:
                return celsius, zone
        return None, None


class AmdSensors:
    """The sensors of the AMD GPU at a PCI address."""

    def __init__(self, address: str, sysroot: str | Path = "/") -> None:
        self._root = Root(sysroot)
        self._places = find_amd(self._root, address)

    def sample(self) -> AmdState:
        """What is so now, of the whole GPU; a partition has no sensors of its own."""
        return read_amd_state(self._root, self._places)
