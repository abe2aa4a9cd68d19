# SPDX-License-Identifier: Apache-2.0
"""Digests of sections: an open file and its verified manifest in, nothing or a DigestError out.

It reads every byte between header and end of file once, sections side by side on the machine's cores and, where the
processor has instructions for SHA-256, two on each: a round of one waits for the round before, and the other one uses
that time. It trusts the places it is given (`verify` checked them before).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import xxhash

from dpfedge import limits
from dpfedge._core import Sha256
from dpfedge.errors import DigestError, FormatError, PackageError
from dpfedge.package.layout import Header
from dpfedge.package.manifest import Manifest, Section
from dpfedge.records import dataclass

__all__ = ["CHUNK_BYTES", "Hasher", "check_sections"]

CHUNK_BYTES = 256 * limits.KIB
"""Read and hashed at once: large enough to leave the interpreter lock free, small enough for a second-level cache."""
_BLOCK_BYTES = 64  # of SHA-256
_LANES = 2 if Sha256.has_lanes() else 1


class Hasher:
    """XXH3-128 and SHA-256 of one section, fed in pieces."""

    def __init__(self) -> None:
        self._xxh3, self._sha256 = xxhash.xxh3_128(), hashlib.sha256()

    def update(self, data: memoryview | bytes) -> None:
        """Take the next bytes."""
        self._sha256.update(data)
        self._xxh3.update(data)

    def digests(self) -> tuple[bytes, bytes]:
        """XXH3-128 in canonical (big-endian) form, 16 bytes, and SHA-256, 32 bytes."""
        return self._xxh3.digest(), self._sha256.digest()


def check_sections(
    fd: int,
    header: Header,
    manifest: Manifest,
    path: Path,
    *,
    only: Callable[[Section], bool] | None = None,
    given_up: Callable[[], bool] = bool,
    both: bool = True,
) -> None:
    """Compare each section with its digests and each gap with zeros; DigestError or FormatError names the first found.

    `only` chooses sections; the gaps are always checked. PackageError as soon as `given_up` says so. `both`: not only
    with the SHA-256, but with the XXH3-128 too.
    """
    from concurrent.futures import ThreadPoolExecutor  # binding checks no section and must not pay for it

    ended = threading.Event()
    file = _File(fd, path, lambda: ended.is_set() or given_up())
    sections = iter(sorted(filter(only, manifest.sections), key=lambda section: -section.size))
    # two lanes do in one processor what one does in two: a start check leaves the other to what is loaded beside it
    cores = os.cpu_count() or 1
    workers = max(1, min(8, cores if both else cores // _LANES))
    with ThreadPoolExecutor(max_workers=workers, thread_name_prefix="digest") as pool:
        jobs = [pool.submit(_check_lanes, file, sections, both) for _ in range(workers)]
        jobs += [pool.submit(_check_gap, file, start, end) for start, end in _gaps(header, manifest)]
        try:
            for job in jobs:
                job.result()
        finally:
            ended.set()  # after a Ctrl-C, say, nobody waits for the rest of a large section
            pool.shutdown(cancel_futures=True)


def _gaps(header: Header, manifest: Manifest) -> Iterator[tuple[int, int]]:
    manifest_end = header.manifest_offset + header.manifest_bytes
    start = header.header_bytes
    for section in manifest.sections:
        yield start, section.offset
        start = section.end
    yield start, header.manifest_offset
    yield manifest_end, header.signature_offset


@dataclass(frozen=True, slots=True)
class _File:
    """What is read, until nobody wants to know any more."""

    fd: int
    path: Path
    given_up: Callable[[], bool]

    def read(self, at: int, buffer: memoryview) -> None:
        """Fill `buffer` from byte `at` on; read, not mapped, so that a file cut meanwhile is an error and no SIGBUS."""
        done = 0
        while done < len(buffer):
            where = f"{self.path}: byte {at + done}"
            if self.given_up():
                raise PackageError("the check was given up", where=where)
            try:
                count = os.preadv(self.fd, [buffer[done:]], at + done)
            except OSError as error:
                raise PackageError(f"cannot read: {error.strerror}", where=where) from error
            if not count:
                raise FormatError("the file was cut while it was read", where=where)
            done += count


class _Lane:
    """A section that is being hashed."""

    def __init__(self, file: _File, section: Section, *, both: bool) -> None:
        self._file, self._section, self._at = file, section, section.offset
        self.sha256: Any = Sha256() if _LANES > 1 else hashlib.sha256()
        self._xxh3 = xxhash.xxh3_128() if both else None
        self._buffer = memoryview(bytearray(min(_step(), section.size)))

    @property
    def left(self) -> int:
        """Bytes that are still to be read."""
        return self._section.end - self._at

    def read(self, size: int) -> memoryview:
        """The next `size` bytes, at most `_step()`, valid until the next call; who calls feeds `sha256`."""
        chunk = self._buffer[:size]
        self._file.read(self._at, chunk)
        self._at += size
        if self._xxh3 is not None:
            self._xxh3.update(chunk)
        return chunk

    def compare(self) -> None:
        """DigestError unless what was read is what the manifest says."""
        section, found = self._section, [("SHA-256", self.sha256.digest(), self._section.sha256)]
        if self._xxh3 is not None:
            found.insert(0, ("XXH3-128", self._xxh3.digest(), section.xxh3))
        for name, digest, recorded in found:
            if digest != recorded:
                raise DigestError(
                    f"section is damaged, its {name} differs", found=digest.hex(), allowed=recorded.hex(),
                    where=f"{self._file.path}: section {section.name!r}, bytes {section.offset} to {section.end}",
                    remedy="copy the file again",
                )  # fmt: skip


def _step() -> int:
    """Bytes of one lane that are read and hashed at once: whole blocks, so that a lane can always have company."""
    return max(_BLOCK_BYTES, _whole(CHUNK_BYTES // _LANES))


def _whole(size: int) -> int:
    return size - size % _BLOCK_BYTES


def _check_lanes(file: _File, sections: Iterator[Section], both: bool) -> None:
    """Check sections until none is left, as many side by side as this processor can."""
    lanes: list[_Lane] = []
    while True:
        while len(lanes) < _LANES and (section := next(sections, None)) is not None:
            lanes.append(_Lane(file, section, both=both))
        if not lanes:
            return
        shorter = min(lanes, key=lambda lane: lane.left)
        size = min(_step(), shorter.left)
        if len(lanes) > 1 and (together := _whole(size)):
            one, other = lanes
            one.sha256.update_both(one.read(together), other.sha256, other.read(together))
        else:
            shorter.sha256.update(shorter.read(size))
        for lane in lanes:
            if not lane.left:
                lane.compare()
        lanes = [lane for lane in lanes if lane.left]


def _check_gap(file: _File, start: int, end: int) -> None:
    buffer = memoryview(bytearray(min(CHUNK_BYTES, end - start)))
    for at in range(start, end, CHUNK_BYTES):
        chunk = buffer[: end - at]
        file.read(at, chunk)
        data = bytes(chunk)
        if data.count(0) != len(data):
            place = next(index for index, byte in enumerate(data) if byte)
            raise FormatError(
                "padding is not zero", where=f"{file.path}: byte {at + place}", found=data[place], allowed=0
            )
