# SPDX-License-Identifier: Apache-2.0
"""How much of a package one process holds in memory: a pid and an opened package in, bytes by section kind out.

Sums of a mapping are the kernel's (`/proc/PID/smaps`); which section a resident page belongs to, and whether another
process maps it too, is read page by page (`/proc/PID/pagemap`). A page shared by several processes counts for `pss`
with the mapping's mean share, since the kernel tells only that it is shared. Copies a process made for itself are no
part of the file: `anonymous_bytes` counts those, whatever they hold.
"""

from __future__ import annotations

import mmap
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from dpfedge.errors import Unavailable
from dpfedge.package.manifest import Section
from dpfedge.package.reader import Package
from dpfedge.records import dataclass

__all__ = ["Mapping", "Resident", "anonymous_bytes", "file_mappings", "residency"]

_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56
_FIELDS = {"Rss": "rss", "Pss": "pss", "Private_Clean": "private", "Private_Dirty": "private", "Anonymous": "anonymous"}


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of one kind of section in one process."""

    mapped: int = 0
    rss: int = 0
    """In memory."""
    pss: float = 0.0
    """In memory, each page divided by the number of processes that map it."""
    private: int = 0
    """In memory for this process alone."""

    def __add__(self, other: Resident) -> Resident:
        return Resident(
            self.mapped + other.mapped, self.rss + other.rss, self.pss + other.pss, self.private + other.private
        )


@dataclass(slots=True)
class Mapping:
    """One mapping of a file: addresses, place in the file, and the kernel's sums in bytes."""

    start: int
    end: int
    offset: int
    rss: int = 0
    pss: int = 0
    private: int = 0
    anonymous: int = 0
    """Pages of the mapping that were written and so copied."""


def residency(pid: int, package: Package) -> dict[str, Resident]:
    """Section kind → what process `pid` holds of it; `other` is header, manifest, signatures and padding.

    Empty when the process does not map this very file. Unavailable when the process is gone or another user's.
    """
    found: dict[str, Resident] = {}
    with _open(pid, "pagemap") as pages:
        for mapping in file_mappings(pid, package.path):
            for kind, resident in _by_kind(mapping, package.manifest.sections, _entries(pages.fileno(), mapping)):
                found[kind] = found.get(kind, Resident()) + resident
    return found


def file_mappings(pid: int, path: Path) -> list[Mapping]:
    """Every mapping of the file now called `path` in process `pid`."""
    stat = os.stat(path)
    device = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}"
    found: list[Mapping] = []
    wanted = False
    with _open(pid, "smaps") as lines:
        for line in lines.read().decode("utf-8", "replace").splitlines():
            first, _, rest = line.partition(" ")
            if not first.endswith(":"):
                _, offset, dev, inode, *name = line.split(maxsplit=5)[1:]
                # file systems in layers show another device in smaps than stat does
                same = dev == device or name == [os.path.realpath(path)]
                wanted = same and int(inode) == stat.st_ino
                if wanted:
                    start, end = (int(part, 16) for part in first.split("-"))
                    found.append(Mapping(start, end, int(offset, 16)))
            elif wanted and (field := _FIELDS.get(first[:-1])):
                setattr(found[-1], field, getattr(found[-1], field) + int(rest.split()[0]) * 1024)
    return found


def anonymous_bytes(pid: int) -> int:
    """Memory of process `pid` that belongs to no file: its heap, its stacks, and every copy of weights it made."""
    with _open(pid, "smaps_rollup") as lines:
        fields = dict(line.split(":", 1) for line in lines.read().decode().splitlines()[1:])
    return int(fields["Anonymous"].split()[0]) * 1024


def _open(pid: int, name: str) -> _Reader:
    try:
        return _Reader(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        raise Unavailable(
            "memory of the process cannot be read", where=f"process {pid}", found=error.strerror
        ) from error


class _Reader:
    """A descriptor that is closed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def read(self) -> bytes:
        pieces = []
        while piece := os.read(self._fd, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *parts: object) -> None:
        os.close(self._fd)


def _entries(fd: int, mapping: Mapping) -> array[int]:
    first, count = mapping.start // mmap.PAGESIZE, (mapping.end - mapping.start) // mmap.PAGESIZE
    entries = array("Q")
    entries.frombytes(os.pread(fd, 8 * count, 8 * first))
    return entries


def _by_kind(mapping: Mapping, sections: Sequence[Section], entries: array[int]) -> Iterator[tuple[str, Resident]]:
    present = [bool(entry & _PRESENT) for entry in entries]
    alone = [bool(entry & _EXCLUSIVE) and here for entry, here in zip(entries, present, strict=True)]
    shared = sum(present) - sum(alone)
    share = max(0.0, mapping.pss - sum(alone) * mmap.PAGESIZE) / shared if shared else 0.0
    for kind, first, last in _ranges(mapping, sections):
        here, mine = sum(present[first:last]), sum(alone[first:last])
        yield (
            kind,
            Resident(
                (last - first) * mmap.PAGESIZE,
                here * mmap.PAGESIZE,
                mine * mmap.PAGESIZE + (here - mine) * share,
                mine * mmap.PAGESIZE,
            ),
        )


def _ranges(mapping: Mapping, sections: Sequence[Section]) -> Iterator[tuple[str, int, int]]:
    """Kind, first page and end page inside the mapping; sections start on pages, what is between them is `other`."""
    page, end = mmap.PAGESIZE, (mapping.end - mapping.start) // mmap.PAGESIZE
    at = 0
    for section in sections:
        first = min(end, max(at, (section.offset - mapping.offset) // page))
        last = min(end, max(first, -(-(section.end - mapping.offset) // page)))
        if first > at:
            yield "other", at, first
        if last > first:
            yield section.kind, first, last
        at = max(at, last)
    if end > at:
        yield "other", at, end
