# SPDX-License-Identifier: Apache-2.0
"""AMD SMI, where it is installed: a PCI address in, what sysfs does not tell (throttling above all) out.

The bindings are the package `amdsmi` that comes with a ROCm or from PyPI; they print when their library is missing and
raise whatever they happen to meet, so importing and each call are fenced. It is asked once a second in a thread of its
own: an answer takes longer than a router's samples are apart, and a driver that hangs is to be told, not waited for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpfedge.backend.bounded import Watched
from dpfedge.errors import BackendError, Unavailable
from dpfedge_rocm.devices import WHERE

__all__ = ["Smi", "SmiMissing", "SmiState", "open_smi"]

_WHERE = f"{WHERE}: amdsmi"
_THROTTLES = ("active_prochot_thrm", "active_socket_thrm", "active_vr_thrm", "active_hbm_thrm")
"""Heat, of the socket, its regulators and its memory; a power limit that is reached is ordinary work."""
_UNSUPPORTED = frozenset({2, 3, 40})  # NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_DATA
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CALLS = ("amdsmi_init", "amdsmi_get_processor_handles", "amdsmi_get_gpu_device_bdf", "amdsmi_get_lib_version")


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

    def __init__(self, address: str) -> None:
        self._address = address
        self._module: Any = None
        self._handle: Any = None
        self._watched = Watched(self._look, f"{_WHERE}: {address}")

    def latest(self) -> SmiState:
        """What was so within the last seconds; Unavailable when it hangs, BackendError when it says so."""
        return self._watched.latest()

    def close(self) -> None:
        """Ask no more."""
        self._watched.close()

    def _look(self) -> SmiState:
        if self._handle is None:
            self._module, self._handle = _find(self._address)
        module, handle = self._module, self._handle
        activity = _ask(module, "amdsmi_get_gpu_activity", handle)
        violations = _ask(module, "amdsmi_get_violation_status", handle)
        errors = _ask(module, "amdsmi_get_gpu_total_ecc_count", handle)
        busy = _whole(activity, "gfx_activity")
        throttles = [violations[name] for name in _THROTTLES if isinstance(violations.get(name), bool | int)]
        return SmiState(
            utilisation=None if busy is None or busy > 100 else busy / 100,
            throttled=any(throttles) if throttles else None,
            corrected=_whole(errors, "correctable_count"),
            uncorrected=_whole(errors, "uncorrectable_count"),
        )


def open_smi(address: str) -> Smi | None:
    """AMD SMI for the GPU at `address`, not asked yet; None where the bindings are not installed at all."""
    return Smi(address) if importlib.util.find_spec("amdsmi") is not None else None


def _find(address: str) -> tuple[Any, Any]:
    """The module and its handle of the GPU at `address`."""
    module = _import()
    _call(module, "amdsmi_init")
    _check_version(module)
    for handle in _call(module, "amdsmi_get_processor_handles"):
        told = str(_call(module, "amdsmi_get_gpu_device_bdf", handle)).lower()
        if _BDF.fullmatch(told) and told == address:
            return module, handle
    raise Unavailable("it shows no such GPU", where=f"{_WHERE}: {address}", remedy="look at `amd-smi list`")


def _import() -> Any:
    """The bindings; they print, and raise KeyError, when there is no library, and AttributeError when it is older."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            module = importlib.import_module("amdsmi")
    except (KeyError, ImportError, OSError) as error:
        found = " ".join(printed.getvalue().split()) or repr(error)
        remedy = "install amd-smi-lib of the ROCm in use, or remove the package amdsmi: sysfs tells the rest"
        raise SmiMissing("its library cannot be loaded", where=_WHERE, found=found, remedy=remedy) from error
    except AttributeError as error:
        raise _mismatch(str(error)) from error
    lacking = [name for name in _CALLS if not hasattr(module, name)]
    if lacking:
        raise _mismatch(f"no {', '.join(lacking)}")
    return module


def _mismatch(found: str) -> SmiMissing:
    return SmiMissing(
        "the bindings and libamd_smi.so are of different releases", where=_WHERE, found=found,
        remedy="install the package amdsmi of the ROCm in use (/opt/rocm/share/amd_smi)",
    )  # fmt: skip


def _check_version(module: Any) -> None:
    """Structures change between releases, and nothing else would tell. PyPI's copies carry ROCm's number instead."""
    own = str(getattr(module, "__version__", ""))
    told = _call(module, "amdsmi_get_lib_version")
    major, minor = str(told.get("major")), str(told.get("minor"))
    fits = major in _LIBRARY_OF[own[:2]] if own[:2] in _LIBRARY_OF else own.split(".")[:2] == [major, minor]
    if not fits:
        raise _mismatch(f"bindings {own or 'of no version'}, library {major}.{minor}.{told.get('release')}")


_LIBRARY_OF: Mapping[str, frozenset[str]] = {"6.": frozenset({"24", "25"}), "7.": frozenset({"26"})}
"""Start of ROCm's version → the library's major numbers: ROCm 7.0.2 has 26.0.2 [`amd-smi version`]."""


def _ask(module: Any, name: str, handle: Any) -> Mapping[str, Any]:
    """What a call tells of a GPU; nothing where this release or this GPU has it not."""
    if not hasattr(module, name):
        return {}
    try:
        told = _call(module, name, handle)
    except BackendError as error:
        if getattr(error.__cause__, "err_code", None) in _UNSUPPORTED:
            return {}
        raise
    return told if isinstance(told, Mapping) else {}


def _call(module: Any, name: str, *arguments: Any) -> Any:
    try:
        return getattr(module, name)(*arguments)
    except module.AmdSmiException as error:
        text = " ".join(str(getattr(error, "err_info", "") or error).split())
        raise BackendError(f"{name} failed", where=_WHERE, found=text) from error


def _whole(told: Mapping[str, Any], key: str) -> int | None:
    """A number; the bindings say `N/A` for what is not known."""
    value = told.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
