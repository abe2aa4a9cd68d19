# SPDX-License-Identifier: Apache-2.0
"""ROCm's HIP runtime, as far as it is asked which device is which: a device in, HIP's own number for it out.

KFD's order is HIP's as long as no variable hides devices, so the number is never taken on trust: HIP must say that the
device with that number sits at the device's PCI address. Every call has a bound, and each error is named.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

from dpfedge.backend.api import Device
from dpfedge.backend.bounded import bounded
from dpfedge.backend.loader import load_error, missing_library
from dpfedge.errors import BackendError, Unavailable
from dpfedge_rocm.devices import VARIABLES, WHERE

__all__ = ["LIBRARIES", "Hip", "hip", "number_of"]

LIBRARIES = ("libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so")
"""As the providers of onnxruntime for ROCm 7 and 6 need them, and what a development package has."""
_SYMBOLS = ("hipGetDeviceCount", "hipDeviceGetPCIBusId", "hipSetDevice", "hipDeviceSynchronize", "hipRuntimeGetVersion")
_NO_DEVICE = 100  # hipErrorNoDevice
_ADDRESS_BYTES = 64
_SECONDS = 20.0
_VARIABLES = ", ".join(name for names in VARIABLES for name in names)


class Hip:
    """The library, opened."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name, self._library = name, library
        lacking = [symbol for symbol in _SYMBOLS if not hasattr(library, symbol)]
        if lacking:
            raise Unavailable(
                "the HIP runtime is too old", where=WHERE, found=f"{name} without {', '.join(lacking)}",
                allowed="that of ROCm 6 or 7", remedy="install the ROCm that this build of onnxruntime is for",
            )  # fmt: skip
        library.hipGetErrorString.restype = ctypes.c_char_p

    def version(self) -> str:
        """`7.1` of 70126015 and the like."""
        number = ctypes.c_int()
        self._check("hipRuntimeGetVersion", self._library.hipRuntimeGetVersion(ctypes.byref(number)))
        return f"{number.value // 10_000_000}.{number.value // 100_000 % 100}"

    def addresses(self) -> Sequence[str]:
        """The PCI address of each device HIP shows to this process, by its number."""
        count = ctypes.c_int()
        status = self._library.hipGetDeviceCount(ctypes.byref(count))
        if status == _NO_DEVICE:
            return ()
        self._check("hipGetDeviceCount", status)
        return [self._address(number) for number in range(count.value)]

    def synchronise(self, number: int) -> None:
        """Return when everything begun on a device has ended."""
        self._check("hipSetDevice", self._library.hipSetDevice(number))
        self._check("hipDeviceSynchronize", self._library.hipDeviceSynchronize())

    def _address(self, number: int) -> str:
        text = ctypes.create_string_buffer(_ADDRESS_BYTES)
        self._check("hipDeviceGetPCIBusId", self._library.hipDeviceGetPCIBusId(text, _ADDRESS_BYTES, number))
        return text.value.decode("ascii", "replace").lower()

    def _check(self, call: str, status: int) -> None:
        if status:
            told = self._library.hipGetErrorString(status) or b"unknown error"
            raise BackendError(
                f"{call} failed", where=WHERE, found=f"{status}, {told.decode('utf-8', 'replace')}",
                remedy="`dpfedge doctor --backend rocm` looks for the reason",
            )  # fmt: skip


@cache
def hip() -> Hip:
    """The installed runtime; Unavailable when there is none, when it is too old, or hangs, ends or crashes a process
    that loads it: a child tries that first, because loading cannot be bounded here (Python's lock is held)."""
    reasons = []
    for name in LIBRARIES:
        reasons.append(load_error([name]))
        if not reasons[-1]:
            return Hip(ctypes.CDLL(name), name)
        if missing_library(reasons[-1]) is None:  # it is there, and cannot be used: an older one must not hide that
            break
    found = reasons[0] if missing_library(reasons[-1]) else f"{name}: {reasons[-1]}"
    raise Unavailable("the HIP runtime cannot be loaded", where=WHERE, found=found, remedy="install ROCm 7 or 6")


def number_of(device: Device) -> int:
    """HIP's number for `device`; Unavailable when HIP does not show it, or shows another number of its partitions."""
    addresses = bounded(lambda: hip().addresses(), f"{WHERE}: the HIP runtime", _SECONDS)
    wanted, parts = str(device.facts["pci"]), int(device.facts.get("partitions", 1))
    slot = wanted.rpartition(".")[0]
    # partitions of a GPU are told with one address, or with their number where a function has its own
    numbers = [number for number, address in enumerate(addresses) if address.rpartition(".")[0] == slot]
    if parts == 1:
        numbers = [number for number in numbers if addresses[number] == wanted]
    if len(numbers) != parts:
        raise Unavailable(
            "HIP does not show the device to this process as the kernel does",
            where=f"{WHERE}: {device.id} at {wanted}",
            found=f"{len(numbers)} of {parts} at that address; it shows {', '.join(addresses) or 'no device'}",
            remedy=f"unset {_VARIABLES}, or let it name every partition of the GPU",
        )
    return numbers[int(device.facts.get("partition", 0)) if parts > 1 else 0]
