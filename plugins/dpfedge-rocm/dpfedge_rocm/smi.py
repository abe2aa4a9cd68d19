# SPDX-License-Identifier: Apache-2.0
"""AMD SMI, where it is installed: a PCI address in, what sysfs does not tell (throttling above all) out.

A child process asks it (`smi_child.py`), once a second, for a thread of its own: an answer takes longer than a router's
samples are apart, and a driver that hangs or crashes is to be told, not waited for or died of.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedge.backend.bounded import Watched
from dpfedge.backend.telling import Asked, Teller
from dpfedge.errors import BackendError, Unavailable
from dpfedge_rocm.devices import WHERE

__all__ = ["Smi", "SmiMissing", "SmiState", "open_smi"]

_WHERE = f"{WHERE}: amdsmi"
_FIRST_S, _ANSWER_S = 20.0, 4.0
_REMEDY = "the driver hangs or crashes: look at `dmesg`, and reset the GPU or restart the machine"


class SmiMissing(Unavailable):
    """The library is not there, or of another release than its bindings: what an install lacks, not a GPU."""


@dataclass(frozen=True, slots=True)
class SmiState:
    """One moment of a whole GPU; None is what the library does not tell of it."""

    utilisation: float | None = None
    throttled: bool | None = None
    corrected: int | None = None
    uncorrected: int | None = None


class Smi:
    """One GPU as AMD SMI sees it."""

    def __init__(self, address: str, first_s: float = _FIRST_S, answer_s: float = _ANSWER_S) -> None:
        self._address = address
        asked = Asked(Path(__file__).parent / "smi_child.py", "AMD SMI", f"{_WHERE}: {address}", _REMEDY, _refused)
        self._teller = Teller(asked, answer_s, first_s)
        self._watched = Watched(self._look, asked.where, stale_s=first_s + 1.0)

    def latest(self) -> SmiState:
        """What was so within the last seconds; Unavailable when it hangs, BackendError when it says so."""
        return self._watched.latest()

    def close(self) -> None:
        """Ask no more."""
        self._watched.close()
        self._teller.close()

    def _look(self) -> SmiState:
        told = self._teller.ask("state", self._address)
        busy = told["busy"]
        return SmiState(
            utilisation=None if busy is None or busy > 100 else busy / 100,
            throttled=told["throttled"],
            corrected=told["corrected"],
            uncorrected=told["uncorrected"],
        )


def open_smi(address: str) -> Smi | None:
    """AMD SMI for the GPU at `address`, not asked yet; None where the bindings are not installed at all."""
    return Smi(address) if importlib.util.find_spec("amdsmi") is not None else None


def _refused(told: Mapping[str, Any]) -> BackendError:
    kind, found = told["kind"], told["error"]
    if kind == "missing":
        remedy = "install amd-smi-lib of the ROCm in use, or remove the package amdsmi: sysfs tells the rest"
        return SmiMissing("its library cannot be loaded", where=_WHERE, found=found, remedy=remedy)
    if kind == "mismatch":
        remedy = "install the package amdsmi of the ROCm in use (/opt/rocm/share/amd_smi)"
        what = "the bindings and libamd_smi.so are of different releases"
        return SmiMissing(what, where=_WHERE, found=found, remedy=remedy)
    if kind == "hidden":
        return Unavailable(found, where=_WHERE, remedy="look at `amd-smi list`")
    remedy = "`amd-smi monitor` asks the same; without the package amdsmi, sysfs tells the rest"
    return BackendError(f"{told['call']} failed", where=_WHERE, found=found, remedy=remedy)
