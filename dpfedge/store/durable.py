# SPDX-License-Identifier: Apache-2.0
"""Changing files so that a power loss leaves the old bytes or the new ones; what the system refuses becomes StoreError.

The order is always: write under another name, fsync the file, rename, fsync the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from dpfedge.errors import StoreError

__all__ = ["changing", "fsync_folder", "make_folder", "place", "replace", "unlink"]

_BLOCK_BYTES = 4096  # what a new name or a small file takes of a disk
_ELSEWHERE = "choose another folder with DPFEDGE_STORE or --store"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def changing(where: Path, needed: int = _BLOCK_BYTES) -> Iterator[None]:
    """Turn file system errors below into a StoreError that says what to do; `needed`: bytes the change takes."""
    try:
        yield
    except OSError as error:
        raise _refused(error, where, needed) from error


def _refused(error: OSError, where: Path, needed: int) -> StoreError:
    place = os.fspath(where)
    if error.errno in _FULL:
        remedy = "free some space: `dpfedge gc` deletes what no slot refers to"
        return StoreError(
            "the store's disk is full", where=place, found=_free(where), allowed=f"{needed} bytes", remedy=remedy
        )
    if error.errno == errno.EROFS:
        remedy = "mount it writable, or choose another store with DPFEDGE_STORE"
        return StoreError("the store is read-only", where=place, remedy=remedy)
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "run this as the store's owner, or choose another store with DPFEDGE_STORE"
        return StoreError("the store may not be changed", where=place, found=f"user {os.geteuid()}", remedy=remedy)
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP):
        return StoreError("no store can be made there", where=place, found=error.strerror, remedy=_ELSEWHERE)
    remedy = "look at the kernel's log for the disk"
    return StoreError(f"cannot change the store: {error.strerror}", where=place, remedy=remedy)


def _free(where: Path) -> str | None:
    while not where.exists() and where != where.parent:
        where = where.parent
    try:
        status = os.statvfs(where)
    except OSError:
        return None
    return f"{status.f_bavail * status.f_frsize} bytes free"


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, durably; one that is there is fine."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=0o755, exist_ok=True)
        fsync_folder(path.parent)


def place(source: Path, target: Path) -> None:
    """Give a durable file its final name, durably."""
    os.rename(source, target)
    fsync_folder(target.parent)
    if source.parent != target.parent:
        fsync_folder(source.parent)


def replace(path: Path, data: bytes) -> None:
    """Make `path` hold `data`; an OSError leaves it as it was, a StoreError says that the disk did not let it."""
    try:
        before: bytes | None = path.read_bytes()
    except FileNotFoundError:
        before = None
    new = path.with_name(f".{path.name}.new")
    try:
        _write(new, data)
        os.rename(new, path)
        try:
            fsync_folder(path.parent)
        except OSError as error:
            if not _put_back(path, new, before):
                what = "the change was made, but the disk does not say that it is durable, nor lets it be undone"
                remedy = "look at the kernel's log for the disk"
                raise StoreError(what, where=os.fspath(path), found=error.strerror, remedy=remedy) from error
            raise
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def unlink(path: Path) -> None:
    """Delete a file, durably; one that is gone is fine."""
    path.unlink(missing_ok=True)
    fsync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)


def _put_back(path: Path, new: Path, before: bytes | None) -> bool:
    """Undo a rename whose durability the disk refused; False when it refuses this too."""
    try:
        if before is None:
            path.unlink()
        else:
            _write(new, before)
            os.rename(new, path)
    except OSError:
        return False
    return True
