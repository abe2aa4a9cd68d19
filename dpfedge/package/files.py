# SPDX-License-Identifier: Apache-2.0
"""A file that takes its place only when it is whole and durable; it knows nothing of what is in it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from dpfedge.errors import PackageError, WriteError

__all__ = ["call", "publish", "temporary_beside", "write_at"]

P = ParamSpec("P")
R = TypeVar("R")


def call(where: Path, function: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """The result of an operation of the system; WriteError instead of its OSError."""
    try:
        return function(*arguments, **options)
    except OSError as error:
        what = f"cannot write the package: {error.strerror}"
        found, remedy = _room(where) if error.errno in (errno.ENOSPC, errno.EDQUOT) else (None, None)
        raise WriteError(what, where=os.fspath(where), found=found, remedy=remedy) from error


def _room(where: Path) -> tuple[str, str]:
    disk = os.statvfs(where.parent)
    return f"{disk.f_bavail * disk.f_frsize} bytes free", "make room, or write it elsewhere"


def temporary_beside(path: Path) -> Path:
    """A name in the same folder that nobody else takes; PackageError where no file may take the place of `path`."""
    if os.path.exists(path) and not os.path.isfile(path):  # a rename would take away a device: `-o /dev/null` of root
        raise PackageError("cannot write the package: not a regular file", where=os.fspath(path))
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.part")


def write_at(where: Path, fd: int, view: memoryview, offset: int) -> None:
    """Write all of `view` at `offset`."""
    while view.nbytes:
        count = call(where, os.pwrite, fd, view, offset)
        view, offset = view[count:], offset + count


def publish(fd: int, temporary: Path, path: Path) -> None:
    """Make the written file durable, close it and give it its name; a failure leaves neither file nor descriptor."""
    try:
        try:
            call(path, os.fsync, fd)
        finally:
            os.close(fd)
        call(path, os.replace, temporary, path)
    except PackageError:
        temporary.unlink(missing_ok=True)
        raise
    folder = call(path, os.open, path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(path, os.fsync, folder)
    finally:
        os.close(folder)
