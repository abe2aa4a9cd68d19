# SPDX-License-Identifier: Apache-2.0
"""What the suite measures with: differences of arrays, poison, and memory of this process.

It asserts nothing about time.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpfedge.backend.api import Array

__all__ = ["difference", "handles", "intact", "poisoned", "resident_bytes", "return_at_once"]

_POISON = 0xA5
_GUARD_BYTES = 256  # of poison before and behind memory that is handed out; a multiple of any alignment asked for
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_LARGE_BYTES = 128 << 10  # glibc's own choice, until it adapts


def difference(found: Array, wanted: Array) -> float:
    """The largest difference as a share of the largest wanted value; infinite where dtype, shape or NaNs differ."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    if found.dtype == bool:  # poison is neither 0 nor 1
        found, wanted = found.view(np.uint8), wanted.view(np.uint8)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.abs(a - b))
    largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float("inf") if np.isnan(gap).any() else float(gap.max() / max(largest, 1e-30))


def poisoned(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """Memory filled with a pattern that is no likely answer, to be overwritten by a backend; more of it lies around."""
    size = math.prod(shape) * dtype.itemsize
    whole = np.full(size + 2 * _GUARD_BYTES, _POISON, np.uint8)
    return whole[_GUARD_BYTES : _GUARD_BYTES + size].view(dtype).reshape(tuple(shape))


def intact(array: Array) -> bool:
    """Whether nobody wrote before or behind an array of `poisoned`."""
    whole = array.base
    assert whole is not None
    return bool((whole[:_GUARD_BYTES] == _POISON).all() and (whole[-_GUARD_BYTES:] == _POISON).all())


def handles() -> int:
    """Open files and threads of this process."""
    gc.collect()
    return len(os.listdir("/proc/self/fd")) + len(os.listdir("/proc/self/task"))


def return_at_once() -> None:
    """From now on the allocator keeps no large memory that was freed; glibc would, for each of its threads' heaps.

    Without it a backend that loads in threads seems to leak: each may leave as much behind as a model is large.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)


def resident_bytes() -> int:
    """Memory of this process after everything unreachable was given back."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:  # glibc keeps freed memory for itself until it is told not to
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
