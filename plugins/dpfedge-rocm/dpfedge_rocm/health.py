# SPDX-License-Identifier: Apache-2.0
"""An AMD GPU's health: its PCI address in, the contract's record of this moment out.

The kernel's files are read at each look; AMD SMI, where it is installed, adds what they lack. One that is installed and
does not answer is an error: a driver that hangs is no healthy one. One that cannot be loaded is left out, and
`without` says why.
"""

from __future__ import annotations

from pathlib import Path

from dpfedge.backend.api import Health
from dpfedge.backend.sensors import AmdSensors, AmdState
from dpfedge.errors import Unavailable
from dpfedge_rocm.devices import WHERE
from dpfedge_rocm.smi import Smi, SmiMissing, SmiState, open_smi

__all__ = ["Watch"]


class Watch:
    """Looks at one GPU."""

    def __init__(self, address: str, sysroot: Path = Path("/"), smi: Smi | None = None) -> None:
        self._where = f"{WHERE}: GPU at {address}"
        self._sensors = AmdSensors(address, sysroot)
        self._smi = smi or open_smi(address)
        self.without = "" if self._smi is not None else "the package amdsmi is not installed"

    def health(self) -> Health:
        """Now. Unavailable when no file tells how much memory is used: the driver is gone or resets the GPU."""
        files = self._sensors.sample()
        told = self._told()
        if not files.memory_total or files.memory_used is None:
            raise Unavailable(
                "the driver tells nothing of the GPU's memory", where=self._where, found="no mem_info_vram_used",
                remedy="look at `dmesg`: amdgpu is not loaded, or resets the GPU",
            )  # fmt: skip
        return Health(
            utilisation=_first(files.utilisation, told.utilisation, 0.0),
            free_memory=min(1.0, max(0.0, 1 - files.memory_used / files.memory_total)),
            temperature_c=files.temperature_c,
            throttled=bool(told.throttled) or _at_limit(files),
            ecc_corrected=int(_first(files.corrected, told.corrected, 0)),
            ecc_uncorrected=int(_first(files.uncorrected, told.uncorrected, 0)),
            power_w=files.watts,
        )

    def _told(self) -> SmiState:
        try:
            return self._smi.latest() if self._smi is not None else SmiState()
        except SmiMissing as error:
            self._smi, self.without = None, str(error)
            return SmiState()


def _at_limit(files: AmdState) -> bool:
    return None not in (files.temperature_c, files.critical_c) and files.temperature_c >= files.critical_c  # type: ignore[operator]


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
