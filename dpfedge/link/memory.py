# SPDX-License-Identifier: Apache-2.0
"""Shared memory for an arena: how many bytes in, a descriptor whose every page exists out; it lays nothing out in them.

A memfd, which can be sealed. Where the machine refuses memfds (a seccomp filter, a security module, a kernel without
them): a file without a name in the run directory, and a line on stderr that says so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from dpfedge.errors import LinkError

__all__ = ["available", "reserve"]

_NO_ROOM = {errno.ENOSPC, errno.ENOMEM, errno.EFBIG, errno.EDQUOT}
_REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS}
_FEWER = "give the links fewer or smaller slots"


def reserve(create: Callable[[int], int], nbytes: int) -> int:
    """The descriptor of `nbytes` bytes that `create` makes: a memfd for -1, else a file of the open folder it is given.

    LinkError with the needed and the free bytes when there is no room for them, or says what was refused.
    """
    _check_free(nbytes)
    try:
        return create(-1)
    except OSError as error:
        if error.errno not in _REFUSED:
            _fail(error, nbytes, available(), "memory")
        return _in_run_directory(create, nbytes, error)


def _in_run_directory(create: Callable[[int], int], nbytes: int, refused: OSError) -> int:
    from dpfedge.store.places import runtime_folder  # a machine with memfds needs no folder

    path = runtime_folder()
    folder = _open_private(path, refused)
    try:
        fd = create(folder)
    except OSError as error:
        _fail(error, nbytes, os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize, f"memory in {path}")
    finally:
        os.close(folder)
    kind = "an unsealed file" if _in_memory(fd) else "an unsealed file on a disk, to which every message is written,"
    text = f"memfd_create is refused ({refused.strerror}): the links' memory is {kind} in {path}; see link/LINK.md"
    print(f"dpfedge: warning: {text}", file=sys.stderr, flush=True)
    return fd


def _open_private(path: Path, refused: OSError) -> int:
    """The run directory, open, if it is this user's alone."""
    remedy = "allow memfd_create, or set XDG_RUNTIME_DIR to a folder of your own"
    what = f"memfd_create is refused ({refused.strerror}), and the run directory"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise LinkError(f"{what} cannot be used", where=str(path), found=error.strerror, remedy=remedy) from error
    info = os.fstat(folder)
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(folder)
        found = f"owner {info.st_uid}, mode {stat.S_IMODE(info.st_mode):o}"
        raise LinkError(f"{what} is open to others", where=str(path), found=found, remedy=remedy)
    return folder


def _in_memory(fd: int) -> bool:
    """Whether the file has no disk below it: only such files answer this question."""
    try:
        fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return False
    return True


def _check_free(nbytes: int) -> None:
    # Shared memory beyond what is there does not fail, it lets the kernel kill somebody: refuse before.
    free = available()
    if free is not None and nbytes > free:
        allowed = f"at least {nbytes} bytes"
        raise LinkError("not enough memory", where="arena", found=f"{free} bytes free", allowed=allowed, remedy=_FEWER)


def _fail(error: OSError, nbytes: int, free: int | None, place: str) -> NoReturn:
    if error.errno in _NO_ROOM:
        raise LinkError(
            f"{place} cannot be reserved: {error.strerror}", where="arena", found=f"{free} bytes free",
            allowed=f"at least {nbytes} bytes", remedy=_FEWER,
        ) from error  # fmt: skip
    remedy = "raise the limit on open files (ulimit -n)" if error.errno in (errno.EMFILE, errno.ENFILE) else None
    raise LinkError("shared memory cannot be made", where="arena", found=error.strerror, remedy=remedy) from error


def available(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Free bytes, the least of machine, this process's cgroup and its address space; None when nobody tells."""
    known = (_machine_free(proc), _cgroup_free(proc, cgroup), _address_space_free(proc))
    return min((free for free in known if free is not None), default=None)


def _machine_free(proc: Path) -> int | None:
    try:
        lines = (proc / "meminfo").read_text("ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup_free(proc: Path, cgroup: Path) -> int | None:
    try:
        own = (proc / "self/cgroup").read_text("ascii").rpartition("::")[2].strip().lstrip("/")
        most = (cgroup / own / "memory.max").read_text("ascii").strip()
        used = (cgroup / own / "memory.current").read_text("ascii").strip()
    except OSError:
        return None
    return None if most == "max" else max(int(most) - int(used), 0)


def _address_space_free(proc: Path) -> int | None:
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most == resource.RLIM_INFINITY:
        return None
    used = int((proc / "self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    return max(most - used, 0)
