# SPDX-License-Identifier: Apache-2.0
"""Memory of drivers that share only what they allocated: `CL_MEM_ALLOC_HOST_PTR`, mapped while the CPU uses it.

The caller's arrays are copied to and from such memory, and every byte of that is counted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.library import check, driver
from dpfedge_opencl.memory import ALLOC_HOST_PTR, READ_WRITE, Block, Span
from dpfedge_opencl.native import Handle, native

__all__ = ["Mapped"]

_READ_AND_WRITE = 3  # CL_MAP_READ | CL_MAP_WRITE


class _Allocated:
    """One allocation of the driver; its address may be another one at each map."""

    __slots__ = ("_host", "_memory", "size", "span")

    def __init__(self, memory: Mapped, size: int) -> None:
        self._memory, self.size = memory, max(size, 1)
        self._host: Array | None = None
        flags = READ_WRITE | ALLOC_HOST_PTR
        buffer = driver(
            lambda: native().buffer(memory.context, flags, self.size, None, memory.where),
            "clCreateBuffer", memory.where,
        )  # fmt: skip
        self.span = Span(buffer, 0, None)

    def host(self) -> Array:
        """Its bytes, mapped until `release`."""
        if self._host is None:
            self._host = self._memory.map(self.span.buffer, self.size)
        return self._host

    def release(self) -> None:
        """Unmap it."""
        if self._host is not None:
            self._memory.unmap(self.span.buffer, self._host)
            self._host = None


class Mapped:
    """Memory by `CL_MEM_ALLOC_HOST_PTR`."""

    name = "alloc_host_ptr"
    in_place = False

    def __init__(self, context: Handle, queue: Handle, where: str) -> None:
        self.context, self._queue, self.where, self.copied = context, queue, where, 0
        self.copies = 0

    def wrap(self, array: Array, *, write: bool, address: int | None = None) -> Span:
        """Memory of the driver's with a copy of the array."""
        block = self.allocate(array.nbytes)
        block.span.keep = block
        self.enter(block.span, array)
        return block.span

    def allocate(self, size: int) -> Block:
        """Memory of the driver's."""
        return _Allocated(self, size)

    def enter(self, span: Span, array: Array) -> None:
        """Copy the array in."""
        self._copy(span, array, inwards=True)

    def leave(self, span: Span, array: Array) -> None:
        """Copy the array out."""
        self._copy(span, array, inwards=False)

    def map(self, buffer: Handle, size: int) -> Array:
        """A blocking map of all of it."""

        def call() -> int:
            code = ctypes.c_int()
            at = native().clEnqueueMapBuffer(
                self._queue.value, buffer.value, 1, _READ_AND_WRITE, 0, size, 0, None, None, ctypes.byref(code)
            )
            check(code.value, "clEnqueueMapBuffer", self.where)
            return int(at)

        address = driver(call, "clEnqueueMapBuffer", self.where)
        memory: Any = (ctypes.c_uint8 * size).from_address(address)
        return np.ndarray((size,), np.uint8, memory)

    def unmap(self, buffer: Handle, host: Array) -> None:
        """Give the mapping back, and wait: kernels are enqueued on other queues."""
        address = int(host.__array_interface__["data"][0])

        def call() -> None:
            code = native().clEnqueueUnmapMemObject(self._queue.value, buffer.value, address, 0, None, None)
            check(code or native().clFinish(self._queue.value), "clEnqueueUnmapMemObject", self.where)

        driver(call, "clEnqueueUnmapMemObject", self.where)

    def _copy(self, span: Span, array: Array, *, inwards: bool) -> None:
        if not array.nbytes:
            return
        block = span.keep
        assert isinstance(block, _Allocated)
        device, ours = block.host()[: array.nbytes], array.reshape(-1).view(np.uint8)
        if inwards:
            device[:] = ours
        else:
            ours[:] = device
        block.release()
        self.copied += array.nbytes
        self.copies += 1
