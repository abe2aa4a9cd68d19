# SPDX-License-Identifier: Apache-2.0
"""Which pages of a file the kernel holds in memory, whoever read them: a path in, one flag for each page out."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

__all__ = ["cached_pages", "make_cold"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def cached_pages(path: Path) -> list[bool]:
    """True for each page that is in memory; looking reads none."""
    size = path.stat().st_size
    flags = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    fd = os.open(path, os.O_RDONLY)
    try:
        address = _libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    finally:
        os.close(fd)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        if _libc.mincore(address, size, flags):
            raise OSError(ctypes.get_errno(), "mincore")
    finally:
        _libc.munmap(address, size)
    return [bool(flag & 1) for flag in flags.raw]


def make_cold(path: Path) -> bool:
    """Ask the kernel to forget the file's pages; False where it keeps some (another mapping, or memory is the disk)."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return not any(cached_pages(path))
