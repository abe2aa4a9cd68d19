# SPDX-License-Identifier: Apache-2.0
"""A Tegra's health: its kernel's files, and on Thor NVML, in; the contract's record of this moment out.

Power monitors sit on a slow bus: they are asked once a second at most, however often health is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpfedge_cuda.backend import THROTTLED

from dpfedge.backend.api import Device, Health
from dpfedge.backend.sensors import TegraSensors, TegraState
from dpfedge.errors import Unavailable
from dpfedge_jetson.devices import WHERE

__all__ = ["Watch"]

_POWER_S = 1.0
Ask = Callable[[str], Mapping[str, Any]]
"""PCI address → what NVML tells of the GPU there."""


class Watch:
    """Looks at one machine with a Tegra."""

    def __init__(self, ask: Ask, sysroot: Path = Path("/")) -> None:
        self._ask, self._sensors = ask, TegraSensors(sysroot)
        self._power, self._asked = TegraState(), float("-inf")

    def health(self, device: Device) -> Health:
        """Now; a DLA has no load of its own that anybody tells. Unavailable without a memory figure."""
        state, power = self._sensors.sample(), self.power()
        told = self._ask(str(device.facts["pci"])) if "pci" in device.facts else {}
        if state.memory_free is None:
            raise Unavailable("no file tells how much memory is free", where=f"{WHERE}: {device.id}")
        busy = told.get("utilisation")
        own = state.utilisation if busy is None else busy / 100
        temperature = state.temperature_c if state.temperature_c is not None else told.get("temperature")
        return Health(
            utilisation=0.0 if own is None or device.kind.startswith("dla.") else min(1.0, max(0.0, own)),
            free_memory=min(1.0, max(0.0, state.memory_free)),
            temperature_c=None if temperature is None else float(temperature),
            throttled=state.throttled or bool((told.get("reasons") or 0) & THROTTLED),
            ecc_corrected=told.get("corrected") or 0,
            ecc_uncorrected=told.get("uncorrected") or 0,
            faults=told.get("faults") or 0,
            power_w=power.watts,
        )

    def power(self) -> TegraState:
        """Rails, watts of the whole board and nvpmodel's mode, at most a second old."""
        now = time.monotonic()
        if now - self._asked >= _POWER_S:
            self._power, self._asked = self._sensors.power(), now
        return self._power
