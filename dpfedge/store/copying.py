# SPDX-License-Identifier: Apache-2.0
"""A file's bytes into the store: shared with the source where the file system can, copied by the kernel otherwise.

The copy is durable and read-only when this returns; nothing is checked.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dpfedge import limits
from dpfedge.errors import StoreError
from dpfedge.store.durable import changing

__all__ = ["copy_in", "require_space"]

_SPARE_BYTES = 1 * limits.MIB
"""For the record, the slots and the file system's own tables."""
_AT_ONCE = 1 * limits.GIB
_UNABLE = (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


def require_space(folder: Path, nbytes: int) -> None:
    """StoreError, with both figures, unless the disk of `folder` has room for `nbytes` more."""
    with changing(folder):
        status = os.statvfs(folder)
    free, needed = status.f_bavail * status.f_frsize, nbytes + _SPARE_BYTES
    if free < needed:
        remedy = "free some space: `dpfedge gc` deletes what no slot refers to"
        raise StoreError(
            "the store's disk has too little room", where=os.fspath(folder), found=f"{free} bytes free",
            allowed=f"{needed} bytes", remedy=remedy,
        )  # fmt: skip


def copy_in(source: int, target: Path, nbytes: int) -> None:
    """Copy `nbytes` of the open file `source` to `target`, a new file; StoreError leaves none."""
    try:
        with changing(target.parent, nbytes + _SPARE_BYTES):
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _copy(source, fd, nbytes)
                os.fchmod(fd, 0o444)
                os.fsync(fd)
            finally:
                os.close(fd)
    except StoreError:
        with changing(target.parent):
            target.unlink(missing_ok=True)
        raise


def _copy(source: int, target: int, nbytes: int) -> None:
    offset, by_kernel = 0, True
    while offset < nbytes:
        try:
            if by_kernel:  # on btrfs and XFS this shares the blocks and takes no room
                count = os.copy_file_range(source, target, min(_AT_ONCE, nbytes - offset), offset, offset)
            else:
                count = os.sendfile(target, source, offset, min(_AT_ONCE, nbytes - offset))
        except OSError as error:
            if not by_kernel or error.errno not in _UNABLE:
                raise
            by_kernel = False
            os.lseek(target, offset, os.SEEK_SET)
            continue
        if not count:
            return  # the source was cut meanwhile: the check that follows names the place
        offset += count
