# SPDX-License-Identifier: Apache-2.0
"""Digests of sections: an open file and its verified manifest in, nothing or a DigestError out.

It reads every byte between header and end of file once, sections side by side on the machine's cores; it trusts the
places it is given (`verify` checked them before).
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import xxhash

from dpfedge import limits
from dpfedge.errors import DigestError, FormatError, PackageError
from dpfedge.package.layout import Header
from dpfedge.package.manifest import Manifest, Section
from dpfedge.records import dataclass

__all__ = ["CHUNK_BYTES", "Hasher", "check_sections"]

CHUNK_BYTES = 512 * limits.KIB
"""Read and hashed at once: large enough to leave the interpreter lock free, small enough for a second-level cache."""


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
) -> None:
    """Compare each section with its two digests and each gap with zeros; DigestError or FormatError names the first.

    `only` chooses sections; the gaps are always checked. PackageError as soon as `given_up` says so.
    """
    from concurrent.futures import ThreadPoolExecutor  # binding checks no section and must not pay for it

    ended = threading.Event()
    file = _File(fd, path, lambda: ended.is_set() or given_up())
    largest_first = sorted(filter(only, manifest.sections), key=lambda section: -section.size)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="digest") as pool:
        jobs = [pool.submit(_check_section, file, section) for section in largest_first]
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

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, memoryview]]:
        """(offset, bytes) of the range; read, not mapped, so that a file cut meanwhile is an error and no SIGBUS."""
        buffer = memoryview(bytearray(min(CHUNK_BYTES, end - start)))
        at = start
        while at < end:
            where = f"{self.path}: byte {at}"
            if self.given_up():
                raise PackageError("the check was given up", where=where)
            try:
                count = os.preadv(self.fd, [buffer[: end - at]], at)
            except OSError as error:
                raise PackageError(f"cannot read: {error.strerror}", where=where) from error
            if not count:
                raise FormatError("the file was cut while it was read", where=where)
            yield at, buffer[:count]
            at += count


def _check_section(file: _File, section: Section) -> None:
    hasher = Hasher()
    for _, chunk in file.chunks(section.offset, section.end):
        hasher.update(chunk)
    for name, found, recorded in zip(
        ("XXH3-128", "SHA-256"), hasher.digests(), (section.xxh3, section.sha256), strict=True
    ):
        if found != recorded:
            raise DigestError(
                f"section is damaged, its {name} differs", found=found.hex(), allowed=recorded.hex(),
                where=f"{file.path}: section {section.name!r}, bytes {section.offset} to {section.end}",
                remedy="copy the file again",
            )  # fmt: skip


def _check_gap(file: _File, start: int, end: int) -> None:
    for at, chunk in file.chunks(start, end):
        data = bytes(chunk)
        if data.count(0) != len(data):
            place = next(index for index, byte in enumerate(data) if byte)
            raise FormatError(
                "padding is not zero", where=f"{file.path}: byte {at + place}", found=data[place], allowed=0
            )
