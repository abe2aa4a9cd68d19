# SPDX-License-Identifier: Apache-2.0
"""Which way of sharing memory a driver really has: a kernel writes, and this process looks at its own pages.

No vendor's name decides: a driver that copies behind the caller's back is found out, and is given memory of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfedge.errors import BackendError, UsageError
from dpfedge_opencl.library import driver, mapped_errors, native, pyopencl
from dpfedge_opencl.mapped import Mapped
from dpfedge_opencl.memory import Imported, Memory, UseHostPtr

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


def choose(context: Any, queue: Any, device: Any, where: str, known: str | None = None) -> Memory:
    """The best way for `device`; `known` (from a seal) or the environment spares the probe."""
    wanted = os.environ.get(VARIABLE) or known
    if wanted is not None and wanted not in WAYS:
        raise UsageError("no such way of sharing memory", where=f"${VARIABLE}", found=wanted, allowed=", ".join(WAYS))
    for memory in _ways(context, queue, device, where):
        if memory.name == wanted or (
            wanted is None and (not memory.in_place or sees_own_pages(context, queue, memory))
        ):
            return memory
    raise BackendError("the driver has no such way of sharing memory", where=where, found=wanted)


def _ways(context: Any, queue: Any, device: Any, where: str) -> Iterator[Memory]:
    if "cl_arm_import_memory" in device.extensions and (function := _import_function(device)) is not None:
        yield Imported(context, where, function)
    yield UseHostPtr(context, where)
    yield Mapped(context, queue, where)


def _import_function(device: Any) -> Callable[..., int] | None:
    address = native().extension(device.platform.int_ptr, "clImportMemoryARM")
    if not address:
        return None
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    made = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_uint64, pointer, pointer, size, pointer)
    return made(address)


def sees_own_pages(context: Any, queue: Any, memory: Memory) -> bool:
    """Whether a kernel's writes are in our pages without a map, and ours are seen by the next kernel."""
    cl = pyopencl()
    where = f"memory {memory.name}"
    values = np.arange(_VALUES, dtype=np.uint32)
    try:
        span = memory.wrap(values, write=True)
        program = driver(lambda: cl.Program(context, _SOURCE).build([], cache_dir=False), "clBuildProgram", where)
        with mapped_errors(where):
            kernel = cl.Kernel(program, "probe")
            kernel.set_args(span.buffer, np.uint64(span.offset))
        for first in (1, 1000):
            driver(lambda: _run(cl, queue, kernel), "clFinish", where)
            if not np.array_equal(values, np.arange(first, first + _VALUES, dtype=np.uint32)):
                return False
            values[:] = np.arange(999, 999 + _VALUES, dtype=np.uint32)
    except BackendError:
        return False
    return True


def _run(cl: Any, queue: Any, kernel: Any) -> None:
    cl.enqueue_nd_range_kernel(queue, kernel, (_VALUES,), None)
    queue.finish()
