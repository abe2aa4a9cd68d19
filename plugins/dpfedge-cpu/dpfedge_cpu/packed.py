# SPDX-License-Identifier: Apache-2.0
"""Packed weights that processes share: the pages onnxruntime packed in, an image for the seal out; and back.

onnxruntime packs matrices into memory of each process and has no way to be given them packed: it runs every kernel's
PrePack before it looks at stored ones. So packing stays, but its result need not: pages that equal a page of the
sealed image are replaced by a private mapping of that page. What a process reads does not change by a bit, the memory
is the page cache's, one for all processes, and can be dropped and read again. Pages that differ stay as they are.

glibc gives each large allocation pages of its own, at the same place inside its first page every time; that is what
makes pages comparable, and `own_pages` asks for it while weights are packed.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np

from dpfedge.backend.api import Array, SealedView
from dpfedge.errors import BackendError, Unsupported
from dpfedge_cpu.session import forget_pages

__all__ = ["IMAGE", "KEYS", "collect", "load_shared", "share"]

IMAGE, KEYS = "packed", "packed.keys"
"""Names of what is sealed: pages one after the other, and one number for each of them."""

_WORDS = mmap.PAGESIZE // 8
_SAMPLED = np.array([9, 77, 150, 223, 300, 377, 450, _WORDS - 7])
_ODD = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93,
                 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3, 0x589965CC75374CC3],
                np.uint64)  # fmt: skip
_WORTH_PAGES = 16
_WORTH = 128  # the weights' bytes over the image's: a graph that packs nothing has some alike pages of objects, too
_PIECE = 1024  # pages looked at together: they stay in the second-level cache between reading and comparing
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
_OWN_PAGES_BYTES = 16 << 10
_USUAL_BYTES = 32 << 20  # where glibc's own adaptation of this number ends
_MAP_FIXED = 0x10
_IS_MAPPED = 2  # in the size before an allocation (glibc: malloc.c, IS_MMAPPED): it has pages of its own
_MAPPED_PHASE = 16  # where its header leaves such an allocation
_HELD_MAX_BYTES = 4 << 30  # more holes than that no heap has: it is another allocator
_ONE_AT_A_TIME = threading.Lock()

Words = np.ndarray[Any, np.dtype[np.uint64]]
Range = tuple[int, int]
Loaded = TypeVar("Loaded")


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "process_vm_readv"):
        raise Unsupported("packed weights are shared with glibc only", where="backend cpu", found="another C library")
    libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    libc.mmap.restype = libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes, libc.free.argtypes = (ctypes.c_size_t,), (ctypes.c_void_p,)
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    _check_reads(libc)
    return libc


def _check_reads(libc: ctypes.CDLL) -> None:
    """Unsupported where the kernel, a filter or an emulator refuses: no page would ever be found equal."""
    here, there = ctypes.c_uint64(1), ctypes.c_uint64()
    local, remote = _Iovec(ctypes.addressof(there), 8), _Iovec(ctypes.addressof(here), 8)
    if libc.process_vm_readv(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != 8:
        raise Unsupported(
            "packed weights are shared only where a process may read its own memory by process_vm_readv",
            where="backend cpu",
            found=os.strerror(ctypes.get_errno()),
            remedy="allow the call, or remove the seal",
        )


@contextmanager
def own_pages() -> Iterator[None]:
    """Give allocations of 16 KiB and more pages of their own, as far as they are made inside."""
    libc = _libc()
    libc.mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    held: list[int] = []
    try:
        held += _hold_free_memory(libc)
        yield
    finally:
        _give_back(libc, held)
        # activations must not be mapped and unmapped on every run
        libc.mallopt(_M_MMAP_THRESHOLD, _USUAL_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _USUAL_BYTES)


def _hold_free_memory(libc: ctypes.CDLL) -> list[int]:
    """Take what earlier work left free in large pieces: the allocator would use it up before it maps anew.

    Unsupported for another allocator in glibc's place: it would put weights anywhere, and nothing would be shared.
    """
    held: list[int] = []
    left = _HELD_MAX_BYTES
    for size in (16 * _OWN_PAGES_BYTES, _OWN_PAGES_BYTES):
        while not _has_own_pages(address := libc.malloc(size)):
            held.append(address)
            left -= size
            if left < 0:
                _give_back(libc, held)
                raise Unsupported(
                    "packed weights are shared with glibc's allocator only",
                    where="backend cpu",
                    found="another one, perhaps of LD_PRELOAD",
                    remedy="start without it, or remove the seal",
                )
        libc.free(address)
    return held


def _has_own_pages(address: int | None) -> bool:
    if address is None:
        raise MemoryError
    # only there is what lies before it known to be glibc's header
    if address % mmap.PAGESIZE != _MAPPED_PHASE:
        return False
    return bool(ctypes.c_size_t.from_address(address - ctypes.sizeof(ctypes.c_size_t)).value & _IS_MAPPED)


def _give_back(libc: ctypes.CDLL, held: Sequence[int]) -> None:
    for address in held:
        libc.free(address)
    libc.malloc_trim(0)  # what was held and what packing used in between is free now, and would stay resident


def load_shared(load: Callable[[], Loaded], sealed: Mapping[str, SealedView]) -> Loaded:
    """`load()`, and then every page it made that the sealed image holds is the image's."""
    image, keys = _checked(sealed)
    with _ONE_AT_A_TIME, own_pages():
        before = private_ranges()
        loaded = load()
        share(without(private_ranges(), before), image, np.frombuffer(keys.data, np.uint64))
    forget_pages(image.data)  # they are read through the mappings that were made; once is enough
    return loaded


def _checked(sealed: Mapping[str, SealedView]) -> tuple[SealedView, SealedView]:
    """Image and keys, when they are there and fit each other: what a sidecar holds is only a backend's to judge."""
    if set(sealed) == {IMAGE, KEYS}:
        image, keys = sealed[IMAGE], sealed[KEYS]
        pages, rest = divmod(image.data.nbytes, mmap.PAGESIZE)
        if pages and not rest and keys.data.nbytes == 8 * pages:
            _check_file(image)
            return image, keys
    found = ", ".join(f"{name} of {view.data.nbytes} bytes" for name, view in sorted(sealed.items()))
    raise BackendError(
        "sealed weights have another form",
        where="backend cpu",
        found=found,
        allowed=f"{IMAGE} of whole pages and {KEYS} of 8 bytes for each",
        remedy="run `dpfedge seal`",
    )


def _check_file(image: SealedView) -> None:
    """BackendError where the file ends before the image: its pages would be mapped, and kill who reads them."""
    try:
        size = os.fstat(image.file).st_size
    except OSError as error:
        raise BackendError("cannot map packed weights", where="backend cpu", found=error.strerror) from error
    if size < image.offset + image.data.nbytes:
        raise BackendError(
            "sealed weights lie outside of their file", where="backend cpu", found=f"{size} bytes",
            allowed=f"{image.offset + image.data.nbytes} or more", remedy="run `dpfedge seal`",
        )  # fmt: skip


def collect(load: Callable[[], object], weights: int = 0) -> dict[str, Sequence[Array]] | None:
    """The image of the pages that two runs of `load()` make alike, and its keys, in pieces.

    None for less than 16 pages or a 128th of `weights` (bytes of the graph's): objects are alike by chance, too. It
    takes the memory of one load and one image.
    """
    images, kept = [], []
    with _ONE_AT_A_TIME:
        with own_pages():
            found = [_keys(pages) for pages in _made_by(load)]
        first = np.unique(np.concatenate(found or [np.zeros(0, np.uint64)]))
        # anew: what has been freed meanwhile, by an import of NumPy's for one, the second load would be given
        with own_pages():
            for pages in _made_by(load):
                keys = _keys(pages)
                same = np.isin(keys, first) & pages.any(axis=1)
                images.append(pages[same])
                kept.append(keys[same])
    least = max(_WORTH_PAGES * mmap.PAGESIZE, weights // _WORTH)
    return {IMAGE: images, KEYS: kept} if sum(pages.nbytes for pages in images) >= least else None


def _made_by(load: Callable[[], object]) -> Iterator[Words]:
    """The pages that `load()` adds, piece by piece; each is valid until the next one."""
    before = private_ranges()
    loaded = load()
    for start, end in without(private_ranges(), before):
        for _, pages in _read(start, end):
            yield pages
    del loaded


def share(ranges: Sequence[Range], image: SealedView, keys: Words) -> int:
    """Replace pages inside `ranges` that equal one of `image`; how many bytes are shared now.

    The caller owns these addresses: nothing else writes there or gives them back meanwhile.
    """
    sealed = np.frombuffer(image.data, np.uint64).reshape(-1, _WORDS)
    order = np.argsort(keys, kind="stable")
    ascending, shared = keys[order], 0
    for start, end in ranges:
        for address, pages in _read(start, end):
            places = _places(_keys(pages), keys, order, ascending)
            for first, last, place in _runs(places):
                for begin, stop in _equal(pages[first:last], sealed[place : place + last - first]):
                    page = address + (first + begin) * mmap.PAGESIZE
                    _map_over(page, (stop - begin) * mmap.PAGESIZE, image, (place + begin) * mmap.PAGESIZE)
                    shared += stop - begin
    return shared * mmap.PAGESIZE


def private_ranges() -> list[Range]:
    """Addresses of this process's private writable memory without a name: large allocations, not the heap."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            place, access, _, _, inode, *name = line.split(maxsplit=5)
            if inode == "0" and access == "rw-p" and (not name or name[0].startswith("[anon:")):
                start, end = place.split("-")
                found.append((int(start, 16), int(end, 16)))
    return found


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> list[Range]:
    """What of `ranges` lies outside of `taken`; both ascending."""
    found = []
    for start, end in ranges:
        at = start
        for first, last in taken:
            if first < end and last > at:
                if first > at:
                    found.append((at, first))
                at = max(at, last)
        if at < end:
            found.append((at, end))
    return found


def _read(start: int, end: int) -> Iterator[tuple[int, Words]]:
    """Copies of the pages of a range, piece by piece; what another thread has given back meanwhile is left out."""
    libc, buffer = _libc(), np.empty((_PIECE, _WORDS), np.uint64)
    local = _Iovec(buffer.ctypes.data, buffer.nbytes)
    for address in range(start, end, buffer.nbytes):
        remote = _Iovec(address, min(buffer.nbytes, end - address))
        local.size = remote.size
        count = libc.process_vm_readv(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if count > 0:
            yield address, buffer[: count // mmap.PAGESIZE]


def _keys(pages: Words) -> Words:
    keys: Words = (pages[:, _SAMPLED] * _ODD).sum(axis=1, dtype=np.uint64)
    return keys


def _places(found: Words, keys: Words, order: Any, ascending: Words) -> Any:
    """For each page the page of the image it probably equals, or −2; the one after the last page's comes first."""
    at = np.minimum(np.searchsorted(ascending, found), len(keys) - 1)
    places = np.where(ascending[at] == found, order[at], -2)
    for index in (np.flatnonzero(places[1:] != places[:-1] + 1) + 1).tolist():
        while index < len(places) and 0 <= places[index - 1] < len(keys) - 1:
            following = places[index - 1] + 1
            if places[index] == following or keys[following] != found[index]:
                break
            places[index] = following
            index += 1
    return places


def _runs(places: Any) -> Iterator[tuple[int, int, int]]:
    """First page, end page and place in the image of pages that follow each other in both."""
    ends = [*(np.flatnonzero(places[1:] != places[:-1] + 1) + 1).tolist(), len(places)]
    for first, last in zip([0, *ends], ends, strict=False):
        if places[first] >= 0:
            yield first, last, int(places[first])


def _equal(pages: Words, sealed: Words) -> Iterator[Range]:
    """First and end page of each run of equal pages."""
    if _libc().memcmp(pages.ctypes.data, sealed.ctypes.data, pages.nbytes) == 0:
        yield 0, len(pages)
        return
    equal = (pages == sealed).all(axis=1)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], equal, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _map_over(address: int, size: int, image: SealedView, offset: int) -> None:
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    access = mmap.PROT_READ | mmap.PROT_WRITE
    if _libc().mmap(address, size, access, flags, image.file, image.offset + offset) != address:
        raise BackendError("cannot map packed weights", where="backend cpu", found=os.strerror(ctypes.get_errno()))
