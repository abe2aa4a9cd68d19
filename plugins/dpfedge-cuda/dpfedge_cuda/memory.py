# SPDX-License-Identifier: Apache-2.0
"""Host memory that a GPU reads and writes where it lies: arrays in, device addresses out.

A link's arena, or any mapping of memory, is pinned and mapped for the device as a whole the first time an array in it
is bound (cuMemHostRegister), and given back when the last binding lets go of it. Arrays of the heap are not: pages they
share with other things cannot be pinned, and onnxruntime copies them, which bindings count.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from dpfedge_cpu.session import address_of

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError
from dpfedge_cuda.driver import Context

__all__ = ["CudaMemory", "Region", "mapping_of"]

_REGISTERED = 712  # cuda.h: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED


class Region:
    """A pinned range of host addresses; the device's way to it ends with this object."""

    def __init__(self, context: Context, start: int, end: int) -> None:
        self.start, self.end = start, end
        self._device = context.do("cuMemHostRegister", lambda cuda: cuda.register(start, end - start))
        # the end of the process unpins everything, and no call of the driver can be bounded there
        weakref.finalize(self, _unregister, context, start).atexit = False

    def holds(self, address: int, size: int) -> bool:
        """Whether all of these bytes lie inside."""
        return self.start <= address and address + size <= self.end

    def at(self, address: int) -> int:
        """The device's address of a host address inside."""
        return self._device + address - self.start


def _unregister(context: Context, start: int) -> None:
    try:
        context.do("cuMemHostUnregister", lambda cuda: cuda.call("cuMemHostUnregister", start))
    except BackendError:  # the context ended before; with it the driver unpinned everything
        return


class _Everything:
    """Devices that read the host's page tables (Grace, GB10) reach every address."""

    def at(self, address: int) -> int:
        """The same address."""
        return address


class CudaMemory:
    """Memory of one device as bindings see it; regions are shared by all bindings of a process."""

    kind = "cuda"

    def __init__(self, context: Context) -> None:
        self.number, self._context = context.ordinal, context
        self.own = not (context.facts.get("host_pages") or context.facts.get("integrated"))
        """Whether the device has memory that the host's is far from."""

    def hold(self, array: Array) -> Region | _Everything | None:
        """The device's way to `array` where it lies; None for memory that is no mapping of its own."""
        if self._context.facts.get("host_pages"):
            return _Everything()
        if not array.nbytes or not self._context.facts.get("maps", True) or _is_numpys(array):
            return None
        return _REGIONS.of(self._context, array)

    def wait(self) -> None:
        """Nothing is left to wait for: onnxruntime ends each run by synchronising the stream it was given."""


class _Regions:
    """The pinned ranges of this process, device by device."""

    def __init__(self) -> None:
        self._known: weakref.WeakValueDictionary[tuple[int, int], Region] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def of(self, context: Context, array: Array) -> Region | None:
        address = address_of(array)
        with self._lock:
            for (ordinal, _), region in list(self._known.items()):
                if ordinal == context.ordinal and region.holds(address, array.nbytes):
                    return region
            place = mapping_of(array)
            if place is None:
                return None
            region = Region(context, *place)
            self._known[context.ordinal, region.start] = region
            return region


_REGIONS = _Regions()


def mapping_of(array: Array) -> tuple[int, int] | None:
    """First and end address of the writable mapping that holds all of `array`; None when it lies among other things."""
    address, end = address_of(array), address_of(array) + array.nbytes
    own = any(isinstance(one, mmap.mmap) for one in _owners(array))
    for start, stop, access in _maps():
        if start <= address and end <= stop:
            return (start, stop) if access[1] == "w" and (own or access[3] == "s") else None
    return None


def _is_numpys(array: Array) -> bool:
    """Whether NumPy allocated the memory: on the heap, which is not looked for on each run."""
    *_, last = _owners(array)
    return isinstance(last, np.ndarray) and bool(last.flags.owndata)


def _owners(array: Array) -> Iterator[object]:
    """What the array's memory comes from, link by link."""
    one: object = array
    while one is not None:
        yield one
        one = one.obj if isinstance(one, memoryview) else getattr(one, "base", None)


def _maps() -> Iterator[tuple[int, int, str]]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, *_ = line.split(maxsplit=2)
        start, _, end = place.partition("-")
        yield int(start, 16), int(end, 16), access
