# SPDX-License-Identifier: Apache-2.0
"""Memory that both this process and the device use in place, and what every way of sharing it looks like.

`mapped.py` is for drivers that share only what they allocated, `probing.py` finds out which way a driver has. It plans
no arena.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable
from typing import Protocol

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.library import check
from dpfedge_opencl.native import Handle, native

__all__ = ["ALLOC_HOST_PTR", "READ_WRITE", "Block", "Imported", "InPlace", "Memory", "Span", "UseHostPtr"]

_PAGE = mmap.PAGESIZE
READ_WRITE, READ_ONLY, USE_HOST_PTR, ALLOC_HOST_PTR = 1, 4, 8, 16
_IMPORT_TYPE, _HOST = 0x40B2, 0x40B3
_serials = itertools.count()


class Span:
    """An array as kernels see it: a memory object and the array's first byte in it."""

    __slots__ = ("buffer", "handle", "keep", "offset", "serial")

    def __init__(self, buffer: Handle, offset: int, keep: object) -> None:
        self.buffer, self.offset, self.keep = buffer, offset, keep
        self.handle, self.serial = buffer.value, next(_serials)


class Block(Protocol):
    """Memory of ours: `span` for kernels, `host()` for the CPU until `release()`, which comes before kernels run."""

    span: Span
    size: int

    def host(self) -> Array:
        """Its bytes, for the CPU."""

    def release(self) -> None:
        """The CPU is done with it for now."""


class Memory(Protocol):
    """One way of sharing memory with one device."""

    name: str
    in_place: bool
    """Kernels work in the caller's own pages; else each use is a copy that `copied` counts."""
    copied: int
    """Bytes copied between the caller's memory and the device's so far."""
    copies: int
    """How many copies that were."""

    def wrap(self, array: Array, *, write: bool, address: int | None = None) -> Span:
        """The caller's array for kernels, which may `write` it; `address` is its own, if that is known."""

    def allocate(self, size: int) -> Block:
        """Memory for arenas and outputs, aligned to a page."""

    def enter(self, span: Span, array: Array) -> None:
        """The device sees what the caller wrote to `array`."""

    def leave(self, span: Span, array: Array) -> None:
        """The caller sees what kernels wrote to `array`."""


class Pages:
    """Anonymous pages of this process as a block of memory that is used in place."""

    __slots__ = ("_host", "size", "span")

    def __init__(self, wrap: Callable[[Array], Span], size: int) -> None:
        self.size = max(size, 1)
        self._host = np.frombuffer(mmap.mmap(-1, self.size), np.uint8)
        self.span = wrap(self._host)

    def host(self) -> Array:
        """Its bytes."""
        return self._host

    def release(self) -> None:
        """Nothing: the device uses these very pages."""


class InPlace:
    """Kernels in the very pages of this process: no copy, whatever the size."""

    name = ""
    in_place = True

    def __init__(self, context: Handle, where: str) -> None:
        self._context, self._where, self.copied, self.copies = context, where, 0, 0

    def wrap(self, array: Array, *, write: bool, address: int | None = None) -> Span:
        """The array from the page it begins in: kernels may begin at any element, memory objects not."""
        if address is None:
            address = int(array.__array_interface__["data"][0])
        offset = address % _PAGE
        return Span(self._object(address - offset, offset + max(1, array.nbytes), write), offset, array)

    def allocate(self, size: int) -> Block:
        """Anonymous pages of this process."""
        return Pages(lambda host: self.wrap(host, write=True), size)

    def enter(self, span: Span, array: Array) -> None:
        """Nothing to do."""

    def leave(self, span: Span, array: Array) -> None:
        """Nothing to do."""

    def _object(self, address: int, size: int, write: bool) -> Handle:
        raise NotImplementedError


class UseHostPtr(InPlace):
    """`CL_MEM_USE_HOST_PTR` on drivers that use the pages themselves, as those for CPUs do."""

    name = "use_host_ptr"

    def _object(self, address: int, size: int, write: bool) -> Handle:
        flags = USE_HOST_PTR | (READ_WRITE if write else READ_ONLY)
        return native().buffer(self._context, flags, size, address, self._where)


class Imported(InPlace):
    """`cl_arm_import_memory`: pages of this process on a Mali, pinned by its driver; an error, never a copy.

    The extension's revision 5 forbids sub-buffers, maps and transfers on such memory: only kernels use it here.
    """

    name = "import"

    def __init__(self, context: Handle, where: str, function: Callable[..., int]) -> None:
        super().__init__(context, where)
        self._import = function
        self._properties = (ctypes.c_ssize_t * 3)(_IMPORT_TYPE, _HOST, 0)

    def _object(self, address: int, size: int, write: bool) -> Handle:
        code, flags = ctypes.c_int(), READ_WRITE if write else READ_ONLY
        whole = size + -size % _PAGE  # the kernel driver takes whole cache lines; pages are made of them
        made = self._import(self._context.value, flags, self._properties, address, whole, ctypes.byref(code))
        check(code.value, "clImportMemoryARM", self._where)
        return Handle(int(made), native().clReleaseMemObject)
