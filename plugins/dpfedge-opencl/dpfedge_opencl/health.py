# SPDX-License-Identifier: Apache-2.0
"""The state of an OpenCL device from files: how busy a Mali's devfreq node or the CPU is, how hot, how much is free.

It calls no driver, and answers in microseconds; utilisation is that since the last time it was asked.
"""

from __future__ import annotations

import re
from pathlib import Path

from dpfedge.backend.api import Device, Health

__all__ = ["HealthReader"]

_LOAD = re.compile(r"(\d+)(?:@\d+)?")  # Rockchip: `37@800000000Hz`
_FREE = {"MemAvailable", "MemTotal"}


class HealthReader:
    """Reads a device's state below `root`."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._last: tuple[int, int] = (0, 0)

    def read(self, device: Device) -> Health:
        """The state now; a GPU whose driver tells no load counts as idle."""
        cpu = device.kind.startswith("cpu.")
        busy = self._processors() if cpu else self._devfreq()
        return Health(utilisation=min(1.0, max(0.0, busy)), free_memory=self._free(), temperature_c=self._heat(cpu))

    def _processors(self) -> float:
        """Share of all processors' time that was not idle since the last call."""
        fields = [int(field) for field in self._text("proc/stat").partition("\n")[0].split()[1:9]]
        if len(fields) < 5:
            return 0.0
        total, idle = sum(fields), fields[3] + fields[4]
        before, self._last = self._last, (total, idle)
        passed = total - before[0]
        return 1.0 - (idle - before[1]) / passed if passed > 0 else 0.0

    def _devfreq(self) -> float:
        """`load` of the first devfreq node of a GPU, or kbase's own utilisation."""
        folder = self._root / "sys/class/devfreq"
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        places = [f"sys/class/devfreq/{name}/load" for name in names if "gpu" in name or "mali" in name]
        for place in (*places, "sys/class/misc/mali0/device/utilisation"):
            if match := _LOAD.match(self._text(place)):
                return int(match[1]) / 100
        return 0.0

    def _free(self) -> float:
        rows = (line.split() for line in self._text("proc/meminfo").splitlines())
        found = {row[0].rstrip(":"): int(row[1]) for row in rows if row and row[0].rstrip(":") in _FREE}
        return min(1.0, found.get("MemAvailable", 0) / max(1, found.get("MemTotal", 1)))

    def _heat(self, cpu: bool) -> float | None:
        """The hottest zone named after the processor, in °C."""
        word = ("cpu", "soc", "x86_pkg") if cpu else ("gpu", "mali")
        found = []
        folder = self._root / "sys/class/thermal"
        for zone in sorted(folder.glob("thermal_zone*")) if folder.is_dir() else []:
            name = self._text(f"sys/class/thermal/{zone.name}/type").strip().lower()
            text = self._text(f"sys/class/thermal/{zone.name}/temp").strip()
            if any(part in name for part in word) and text.lstrip("-").isdigit():
                found.append(int(text) / 1000)
        return max(found, default=None)

    def _text(self, place: str) -> str:
        try:
            return (self._root / place).read_text(errors="replace")
        except OSError:
            return ""
