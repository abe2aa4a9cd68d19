# SPDX-License-Identifier: Apache-2.0
"""Which way of sharing memory a driver really has: a kernel writes, and this process looks at its own pages.

No vendor's name decides: a driver that copies behind the caller's back is found out, and is given memory of its own.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpfedge.errors import BackendError, Unavailable, UsageError
from dpfedge_opencl.library import build_seconds, check, driver
from dpfedge_opencl.mapped import Mapped
from dpfedge_opencl.memory import Imported, Memory, Span, UseHostPtr

if TYPE_CHECKING:
    from dpfedge_opencl.runtime import Runtime

__all__ = ["VARIABLE", "WAYS", "choose", "sees_own_pages"]

VARIABLE = "DPFEDGE_OPENCL_MEMORY"
"""Environment variable that names one of WAYS instead of probing."""
WAYS = ("import", "use_host_ptr", "alloc_host_ptr")
_SOURCE = """__kernel void probe(__global uchar *base, const ulong offset) {
  __global uint *values = (__global uint *)(base + offset);
  values[get_global_id(0)] += 1u;
}
"""
_VALUES = 1 << 14  # 64 KiB: more than any cache keeps to itself by chance


def choose(runtime: Runtime, known: str | None = None) -> Memory:
    """The best way for the device of `runtime`; `known` (from a seal) or the environment spares the probe."""
    wanted = os.environ.get(VARIABLE) or known
    if wanted is not None and wanted not in WAYS:
        raise UsageError("no such way of sharing memory", where=f"${VARIABLE}", found=wanted, allowed=", ".join(WAYS))
    for memory in _ways(runtime):
        if memory.name == wanted or (wanted is None and (not memory.in_place or sees_own_pages(runtime, memory))):
            return memory
    raise BackendError("the driver has no such way of sharing memory", where=runtime.where, found=wanted)


def _ways(runtime: Runtime) -> Iterator[Memory]:
    if "cl_arm_import_memory" in runtime.device.extensions and (function := _import_function(runtime)) is not None:
        yield Imported(runtime.context, runtime.where, function)
    yield UseHostPtr(runtime.context, runtime.where)
    yield Mapped(runtime.context, runtime.queue(), runtime.where)


def _import_function(runtime: Runtime) -> Callable[..., int] | None:
    address = runtime.native.extension(runtime.device.platform, "clImportMemoryARM")
    if not address:
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    made = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_uint64, pointer, pointer, size, pointer)
    return made(address)


def sees_own_pages(runtime: Runtime, memory: Memory) -> bool:
    """Whether a kernel's writes are in our pages without a map, and ours are seen by the next kernel.

    False, too, where the driver refuses our pages; whatever else fails is an error.
    """
    values = np.arange(_VALUES, dtype=np.uint32)
    try:
        span = memory.wrap(values, write=True)
    except Unavailable:
        raise
    except BackendError:
        return False
    add_one = _prober(runtime, span)
    for first in (1, 1000):
        driver(add_one, "clFinish", runtime.where)
        if not np.array_equal(values, np.arange(first, first + _VALUES, dtype=np.uint32)):
            return False
        values[:] = np.arange(999, 999 + _VALUES, dtype=np.uint32)
    return True


def _prober(runtime: Runtime, span: Span) -> Callable[[], None]:
    """What runs the kernel on `span` once."""
    made, where, queue = runtime.native, runtime.where, runtime.queue()
    program = driver(
        lambda: made.program(runtime.context, runtime.device.handle, _SOURCE, "", where),
        "clBuildProgram", where, build_seconds(),
    )  # fmt: skip
    kernel = made.kernel(program.value, "probe", where)
    memory, offset = ctypes.c_void_p(span.handle), ctypes.c_uint64(span.offset)
    sizes, handle = (ctypes.c_size_t * 1)(_VALUES), ctypes.c_void_p(kernel)

    def run() -> None:
        for index, value in enumerate((memory, offset)):
            check(made.clSetKernelArg(handle, index, 8, ctypes.byref(value)), "clSetKernelArg", where)
        given = (ctypes.c_void_p(queue.value), handle, 1, None, sizes, None, 0, None, None)
        check(made.clEnqueueNDRangeKernel(*given), "clEnqueueNDRangeKernel", where)
        check(made.clFinish(queue.value), "clFinish", where)

    weakref.finalize(run, made.clReleaseKernel, kernel)
    return run
