# SPDX-License-Identifier: Apache-2.0
"""The process that asks AMD SMI: a GPU's PCI address as a question, what the library tells of it as the answer.

The bindings are the package `amdsmi` that comes with a ROCm or from PyPI; they print when their library is missing and
raise whatever they happen to meet, and loading the library runs code that may hang, with Python's one lock held: so a
child does it (`smi.py` asks it through `dpfedge.backend.telling`).
"""

from __future__ import annotations

import contextlib
import importlib
import io
import re
from collections.abc import Mapping
from typing import Any

from dpfedge.backend.answering import serve

__all__ = ["Refusal", "Seen"]

_THROTTLES = ("active_prochot_thrm", "active_socket_thrm", "active_vr_thrm", "active_hbm_thrm")
"""Heat, of the socket, its regulators and its memory; a power limit that is reached is ordinary work."""
_UNSUPPORTED = frozenset({2, 3, 40})  # NOT_SUPPORTED, NOT_YET_IMPLEMENTED, NO_DATA
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_CALLS = ("amdsmi_init", "amdsmi_get_processor_handles", "amdsmi_get_gpu_device_bdf", "amdsmi_get_lib_version")
_LIBRARY_OF: Mapping[str, frozenset[str]] = {"6.": frozenset({"24", "25"}), "7.": frozenset({"26"})}
"""Start of ROCm's version → the library's major numbers: ROCm 7.0.2 has 26.0.2 [`amd-smi version`]."""


class Refusal(Exception):
    """No answer, and of which `kind`: `missing`, `mismatch`, `hidden` (no such GPU), `call`."""

    def __init__(self, kind: str, error: str, code: int | None = None, call: str = "") -> None:
        super().__init__(error)
        self.told = {"error": error, "kind": kind, "code": code, "call": call}


class Seen:
    """The bindings, loaded, and the handles of GPUs that were asked of."""

    def __init__(self) -> None:
        self.module = _import()
        self._call("amdsmi_init")
        self._check_version()
        self._handles: dict[str, Any] = {}

    def state(self, address: str) -> dict[str, Any]:
        """Load in percent, throttling and errors of the GPU at an address; None for what is not told."""
        if address not in self._handles:
            self._handles[address] = self._find(address)
        handle = self._handles[address]
        activity = self._ask("amdsmi_get_gpu_activity", handle)
        violations = self._ask("amdsmi_get_violation_status", handle)
        errors = self._ask("amdsmi_get_gpu_total_ecc_count", handle)
        throttles = [violations[name] for name in _THROTTLES if isinstance(violations.get(name), bool | int)]
        return {
            "busy": _whole(activity, "gfx_activity"),
            "throttled": any(throttles) if throttles else None,
            "corrected": _whole(errors, "correctable_count"),
            "uncorrected": _whole(errors, "uncorrectable_count"),
        }

    def _find(self, address: str) -> Any:
        for handle in self._call("amdsmi_get_processor_handles"):
            told = str(self._call("amdsmi_get_gpu_device_bdf", handle)).lower()
            if _BDF.fullmatch(told) and told == address:
                return handle
        raise Refusal("hidden", "it shows no such GPU")

    def _check_version(self) -> None:
        """Structures change between releases, and nothing else would tell. PyPI's copies carry ROCm's number."""
        own = str(getattr(self.module, "__version__", ""))
        told = self._call("amdsmi_get_lib_version")
        major, minor = str(told.get("major")), str(told.get("minor"))
        fits = major in _LIBRARY_OF[own[:2]] if own[:2] in _LIBRARY_OF else own.split(".")[:2] == [major, minor]
        if not fits:
            found = f"bindings {own or 'of no version'}, library {major}.{minor}.{told.get('release')}"
            raise Refusal("mismatch", found)

    def _ask(self, name: str, handle: Any) -> Mapping[str, Any]:
        """What a call tells of a GPU; nothing where this release or this GPU has it not."""
        if not hasattr(self.module, name):
            return {}
        try:
            told = self._call(name, handle)
        except Refusal as refusal:
            if refusal.told["code"] in _UNSUPPORTED:
                return {}
            raise
        return told if isinstance(told, Mapping) else {}

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self.module, name)(*arguments)
        except self.module.AmdSmiException as error:
            text = " ".join(str(getattr(error, "err_info", "") or error).split())
            raise Refusal("call", text, getattr(error, "err_code", None), name) from error


def _import() -> Any:
    """The bindings; they print, and raise KeyError, when there is no library, and AttributeError when it is older."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            module = importlib.import_module("amdsmi")
    except (KeyError, ImportError, OSError) as error:
        raise Refusal("missing", " ".join(printed.getvalue().split()) or repr(error)) from error
    except AttributeError as error:
        raise Refusal("mismatch", str(error)) from error
    lacking = [name for name in _CALLS if not hasattr(module, name)]
    if lacking:
        raise Refusal("mismatch", f"no {', '.join(lacking)}")
    return module


def _whole(told: Mapping[str, Any], key: str) -> int | None:
    """A number; the bindings say `N/A` for what is not known."""
    value = told.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def main() -> None:
    """Answer until the one who asks goes away."""
    seen: list[Seen] = []

    def answer(question: dict[str, Any]) -> dict[str, Any]:
        try:
            if not seen:
                seen.append(Seen())
            return seen[0].state(*question["with"])
        except Refusal as refusal:
            return refusal.told

    serve(answer)


if __name__ == "__main__":
    main()
