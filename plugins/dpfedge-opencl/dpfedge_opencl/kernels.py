# SPDX-License-Identifier: Apache-2.0
"""Kernel objects of one binding, kept for the next plan that uses the same program, with the arguments they have.

A graph whose shapes grow with every step has a new plan each time; drivers take long to make a kernel object and
to launch it for the first time. It enqueues nothing.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable
from typing import Any

from dpfedge_opencl.library import check
from dpfedge_opencl.memory import Span
from dpfedge_opencl.native import Native
from dpfedge_opencl.plan import Launch

__all__ = ["KernelObject", "Kernels", "Kind"]


Kind = tuple[tuple[int, str], tuple[int, ...] | None]
"""Program, entry and the size of a work-group; None where the driver chooses it."""


class KernelObject:
    """One `cl_kernel` and what its arguments are."""

    __slots__ = ("_at", "_native", "_set", "call", "handle", "key", "launch")

    def __init__(self, native: Native, handle: int, key: tuple[int, str]) -> None:
        self._native, self.handle, self.key = native, ctypes.c_void_p(handle), key
        self._set: dict[int, bytes] = {}
        self._at: dict[int, tuple[int, int]] = {}
        self.launch: Launch | None = None
        """What its numbers were last set for."""
        self.call: tuple[Any, ...] = ()

    def scalar(self, index: int, value: bytes, where: str) -> None:
        """Set an argument, unless it is that already."""
        if self._set.get(index) != value:
            check(self._native.clSetKernelArg(self.handle, index, len(value), value), f"clSetKernelArg({index})", where)
            self._set[index] = value

    def point(self, index: int, span: Span, memory: Any, delta: int, where: str) -> None:
        """Set an argument and the offset behind it to what lies at `delta` of `span`, unless they are that already.

        `memory` is a C pointer to the span's handle.
        """
        serial, offset = self._at.get(index, (-1, -1))
        wanted, code, set_arg = span.offset + delta, 0, self._native.clSetKernelArg
        if serial != span.serial:
            code = set_arg(self.handle, index, 8, memory)
        if offset != wanted:
            code = code or set_arg(self.handle, index + 1, 8, ctypes.byref(ctypes.c_uint64(wanted)))
        if code:
            self._at.pop(index, None)
            check(code, "clSetKernelArg", where)
        self._at[index] = (span.serial, wanted)


class Kernels:
    """Kernel objects that no plan uses at present, by program and entry."""

    def __init__(self, native: Native) -> None:
        self._native = native
        self._free: dict[tuple[int, str], list[KernelObject]] = {}
        self._handles: list[int] = []
        self._known: set[tuple[int, str]] = set()
        self.launched: set[Kind] = set()
        """What was launched before: drivers compile once more for each size of a work-group."""
        weakref.finalize(self, _release, native, self._handles)

    def knows(self, keys: Iterable[tuple[int, str]]) -> bool:
        """Whether the driver made kernel objects of all of these before."""
        return self._known.issuperset(keys)

    def take(self, program: int, entry: str, where: str) -> KernelObject:
        """A kernel object of `entry`."""
        free = self._free.get((program, entry))
        if free:
            return free.pop()
        handle = self._native.kernel(program, entry, where)
        self._handles.append(handle)
        self._known.add((program, entry))
        return KernelObject(self._native, handle, (program, entry))

    def give(self, kernel: KernelObject) -> None:
        """A plan does not use it any more."""
        self._free.setdefault(kernel.key, []).append(kernel)


def _release(native: Native, handles: list[int]) -> None:
    for handle in handles:
        native.clReleaseKernel(handle)
