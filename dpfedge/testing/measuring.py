# SPDX-License-Identifier: Apache-2.0
"""What the suite measures with: differences of arrays, poison, and memory of this process.

It asserts nothing about time.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dpfedge.backend.api import Array

__all__ = ["difference", "poisoned", "resident_bytes", "return_at_once"]

_POISON = 0xA5
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_LARGE_BYTES = 128 << 10  # glibc's own choice, until it adapts


def difference(found: Array, wanted: Array) -> float:
    """The largest difference as a share of the largest wanted value; infinite where dtype, shape or NaNs differ."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.abs(a - b))
    largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float("inf") if np.isnan(gap).any() else float(gap.max() / max(largest, 1e-30))


def poisoned(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """Memory filled with a pattern that is no likely answer, to be overwritten by a backend."""
    array = np.empty(tuple(shape), dtype)
    array.reshape(-1).view("u1")[...] = _POISON
    return array


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
