# SPDX-License-Identifier: Apache-2.0
"""Writing a package again with another signature area: an opened package and the area's bytes in, a new file out.

Everything between header and area is copied byte for byte; what the area means is for `dpfedge.signing`.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

from dpfedge.errors import PackageError
from dpfedge.package.files import call, publish, temporary_beside, write_at
from dpfedge.package.layout import HEADER_BYTES, pack_header
from dpfedge.package.reader import Package
from dpfedge.package.verify import check_ranges, open_package

__all__ = ["attach"]

_CHUNK_BYTES = 1 << 24


def attach(package: Package, area: bytes, out: Path) -> None:
    """Write `package` with `area` as its signature area to `out`, which appears whole or not at all.

    `out` may be the package's own path; a file that is there keeps its permissions. PackageError when the file system
    refuses, the header is of a later version, or the package's own path leads to another file by now.
    """
    old, where = package.header, os.fspath(package.path)
    if old.header_bytes != HEADER_BYTES:
        raise PackageError(
            "cannot write a header of a later version", where=where, found=f"{old.major}.{old.minor}",
            remedy="use the dpfedge that made the package",
        )  # fmt: skip
    header = replace(old, file_bytes=old.signature_offset + len(area), signature_bytes=len(area))
    check_ranges(header, where)
    temporary = temporary_beside(out)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = call(out, os.open, temporary, flags, 0o666)
    try:
        if out.exists():
            call(out, os.fchmod, fd, stat.S_IMODE(out.stat().st_mode))
        for start in range(HEADER_BYTES, old.signature_offset, _CHUNK_BYTES):
            end = min(start + _CHUNK_BYTES, old.signature_offset)
            write_at(out, fd, memoryview(package.between(start, end)), start)
        write_at(out, fd, memoryview(area), old.signature_offset)
        call(out, os.fsync, fd)  # the header, written last, never stands before data that is not on disk
        write_at(out, fd, memoryview(pack_header(header)), 0)
        _check(temporary, package, out)
    except BaseException:
        os.close(fd)
        temporary.unlink(missing_ok=True)
        raise
    publish(fd, temporary, out)


def _check(written: Path, package: Package, out: Path) -> None:
    """The new file is the same package; in its own place nobody else has put another one, with their signature."""
    where = os.fspath(package.path)
    with open_package(written, check="fast") as again:
        if again.manifest_sha256 != package.manifest_sha256:
            raise PackageError("the file changed while it was copied", where=where)
    if out == package.path and not os.path.samestat(os.fstat(package.fileno()), call(out, os.stat, out)):
        raise PackageError("the file was replaced while it was copied", where=where, remedy="do it again")
