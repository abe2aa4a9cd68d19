# SPDX-License-Identifier: Apache-2.0
"""Digests of sections: an open file and its verified manifest in, nothing or a DigestError out.

It reads every byte between header and end of file once, sections side by side on the machine's cores; it trusts the
places it is given (`verify` checked them before).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import xxhash

from dpfedge import limits
from dpfedge.errors import DigestError, FormatError, PackageError
from dpfedge.package.layout import Header
from dpfedge.package.manifest import Manifest, Section

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


def check_sections(fd: int, header: Header, manifest: Manifest, path: Path) -> None:
    """Compare each section with its two digests and each gap with zeros; DigestError or FormatError names the first."""
    from concurrent.futures import ThreadPoolExecutor  # binding checks no section and must not pay for it

    largest_first = sorted(manifest.sections, key=lambda section: -section.size)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1), thread_name_prefix="digest") as pool:
        jobs = [pool.submit(_check_section, fd, section, path) for section in largest_first]
        jobs += [pool.submit(_check_gap, fd, start, end, path) for start, end in _gaps(header, manifest)]
        try:
            for job in jobs:
                job.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _gaps(header: Header, manifest: Manifest) -> Iterator[tuple[int, int]]:
    manifest_end = header.manifest_offset + header.manifest_bytes
    start = header.header_bytes
    for section in manifest.sections:
        yield start, section.offset
        start = section.end
    yield start, header.manifest_offset
    yield manifest_end, header.signature_offset


def _chunks(fd: int, start: int, end: int, path: Path) -> Iterator[tuple[int, memoryview]]:
    """(offset, bytes) of the range; read, not mapped, so that a file cut meanwhile is an error and no SIGBUS."""
    buffer = memoryview(bytearray(min(CHUNK_BYTES, end - start)))
    at = start
    while at < end:
        try:
            count = os.preadv(fd, [buffer[: end - at]], at)
        except OSError as error:
            raise PackageError(f"cannot read: {error.strerror}", where=f"{path}: byte {at}") from error
        if not count:
            raise FormatError("the file was cut while it was read", where=f"{path}: byte {at}")
        yield at, buffer[:count]
        at += count


def _check_section(fd: int, section: Section, path: Path) -> None:
    hasher = Hasher()
    for _, chunk in _chunks(fd, section.offset, section.end, path):
        hasher.update(chunk)
    for name, found, recorded in zip(
        ("XXH3-128", "SHA-256"), hasher.digests(), (section.xxh3, section.sha256), strict=True
    ):
        if found != recorded:
            raise DigestError(
                f"section is damaged, its {name} differs", found=found.hex(), allowed=recorded.hex(),
                where=f"{path}: section {section.name!r}, bytes {section.offset} to {section.end}",
                remedy="copy the file again",
            )  # fmt: skip


def _check_gap(fd: int, start: int, end: int, path: Path) -> None:
    for at, chunk in _chunks(fd, start, end, path):
        data = bytes(chunk)
        if data.count(0) != len(data):
            place = next(index for index, byte in enumerate(data) if byte)
            raise FormatError("padding is not zero", where=f"{path}: byte {at + place}", found=data[place], allowed=0)
