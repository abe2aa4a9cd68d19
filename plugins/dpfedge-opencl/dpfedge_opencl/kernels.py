# SPDX-License-Identifier: Apache-2.0
"""Kernel objects of one binding, kept for the next plan that uses the same program, with the arguments they have.

A graph whose shapes grow with every step has a new plan each time; drivers take long to make a kernel object and
to launch it for the first time. It enqueues nothing.
"""

from __future__ import annotations

import ctypes
import weakref

from dpfedge_opencl.library import check
from dpfedge_opencl.native import Native

__all__ = ["KernelObject", "Kernels"]


class KernelObject:
    """One `cl_kernel` and what its arguments are."""

    __slots__ = ("_native", "_set", "handle", "key")

    def __init__(self, native: Native, handle: int, key: tuple[int, str]) -> None:
        self._native, self.handle, self.key = native, ctypes.c_void_p(handle), key
        self._set: dict[int, bytes] = {}

    def scalar(self, index: int, value: bytes, where: str) -> None:
        """Set an argument, unless it is that already."""
        if self._set.get(index) != value:
            check(self._native.clSetKernelArg(self.handle, index, len(value), value), f"clSetKernelArg({index})", where)
            self._set[index] = value


class Kernels:
    """Kernel objects that no plan uses at present, by program and entry."""

    def __init__(self, native: Native) -> None:
        self._native = native
        self._free: dict[tuple[int, str], list[KernelObject]] = {}
        self._handles: list[int] = []
        weakref.finalize(self, _release, native, self._handles)

    def take(self, program: int, entry: str, where: str) -> KernelObject:
        """A kernel object of `entry`."""
        free = self._free.get((program, entry))
        if free:
            return free.pop()
        handle = self._native.kernel(program, entry, where)
        self._handles.append(handle)
        return KernelObject(self._native, handle, (program, entry))

    def give(self, kernel: KernelObject) -> None:
        """A plan does not use it any more."""
        self._free.setdefault(kernel.key, []).append(kernel)


def _release(native: Native, handles: list[int]) -> None:
    for handle in handles:
        native.clReleaseKernel(handle)
