# SPDX-License-Identifier: Apache-2.0
"""A few pages of a package and their hashes: what tells, in milliseconds, whether a file came through a power loss.

One page of each window is taken, the first that is not zero: a file that lost the content of a whole window (zeros, or
bytes of another file) does not match. Damage between the pages is found by a full check only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import xxhash

from dpfedge import limits
from dpfedge.errors import DigestError, PackageError
from dpfedge.records import dataclass

__all__ = ["PAGE_BYTES", "Sample", "check_sample", "take_sample"]

PAGE_BYTES = 4096
_PAGES_MAX = 1024
_ZERO = bytes(PAGE_BYTES)


@dataclass(frozen=True, slots=True)
class Sample:
    """`pages`: offset of a page in the file → its XXH3-64; one for each `window` bytes."""

    window: int
    pages: Mapping[int, int] = field(repr=False)

    def record(self) -> dict[str, Any]:
        """As JSON values."""
        return {"window": self.window, "pages": [[offset, f"{digest:016x}"] for offset, digest in self.pages.items()]}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Sample:
        """From JSON values; ValueError, TypeError or KeyError when they are none of a sample."""
        return cls(_size(record["window"]), {_size(offset): int(digest, 16) for offset, digest in record["pages"]})


def _size(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= limits.PACKAGE_MAX_BYTES:
        raise ValueError(f"no number of bytes: {value!r}"[:80])
    return value


def take_sample(path: Path, nbytes: int) -> Sample:
    """Sample a file that was just checked in full; OSError when it cannot be read."""
    window = max(limits.MIB, -(-nbytes // _PAGES_MAX // PAGE_BYTES) * PAGE_BYTES)
    pages: dict[int, int] = {}
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for start in range(0, nbytes, window):
            for offset in range(start, min(start + window, nbytes), PAGE_BYTES):
                data = os.pread(fd, PAGE_BYTES, offset)
                if data != _ZERO[: len(data)]:
                    pages[offset] = xxhash.xxh3_64_intdigest(data)
                    break
    finally:
        os.close(fd)
    return Sample(window, pages)


def check_sample(path: Path, sample: Sample) -> None:
    """Compare each page with its hash; DigestError names the first that differs."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise PackageError(f"cannot open the package: {error.strerror}", where=os.fspath(path)) from error
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # one page in each window, and none read ahead
        for offset, digest in sample.pages.items():
            found = xxhash.xxh3_64_intdigest(os.pread(fd, PAGE_BYTES, offset))
            if found != digest:
                raise _damaged(path, offset, found, digest)
    except OSError as error:
        raise PackageError(f"cannot read: {error.strerror}", where=os.fspath(path)) from error
    finally:
        os.close(fd)


def _damaged(path: Path, offset: int, found: int, recorded: int) -> DigestError:
    where = f"{path}: bytes {offset} to {offset + PAGE_BYTES}"
    return DigestError(
        "an installed file is damaged, a sampled page differs", where=where,
        found=f"{found:016x}", allowed=f"{recorded:016x}", remedy="install the package again, or `dpfedge rollback`",
    )  # fmt: skip
