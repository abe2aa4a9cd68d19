# SPDX-License-Identifier: Apache-2.0
"""The locks of a store, for who changes it and for who builds a seal: who waits too long is told who holds one.

It is an flock, which ends with its process, however that ends. The file's text is for people only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dpfedge.errors import StoreBusy
from dpfedge.store.durable import changing

__all__ = ["WAIT_S", "held", "locked", "ready"]

WAIT_S = 60.0
"""How long a command waits for another one by default; an install of a large package takes most of it on slow flash."""

_PAUSE_S = 0.05


@contextlib.contextmanager
def locked(
    path: Path, what: str, wait_s: float = WAIT_S, doing: str = "another process is changing the store"
) -> Iterator[None]:
    """Hold the lock at `path` to do `what`; StoreBusy says `doing` and names the holder after `wait_s` seconds."""
    with changing(path.parent):
        # a link in another user's store would have root write over what it leads to
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        with changing(path):
            _take(fd, path, wait_s, doing)
        _sign(fd, f"pid {os.getpid()} ({what})")
        yield
        _sign(fd, "")
    finally:
        os.close(fd)


def _sign(fd: int, text: str) -> None:
    with contextlib.suppress(OSError):  # on a full disk, `gc` must get the lock all the same
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode(), 0)


def held(path: Path) -> bool:
    """Whether a process holds the lock at `path`, whose file need not be there; the caller holds the store's own."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block the open
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def ready(path: Path) -> None:
    """Make a lock file that this user can hold and every user can ask for; the caller holds the store's own.

    In the place of another user's (root's, say, who sealed in a service's store), unless it is held.
    """
    with changing(path):
        if not os.access(path, os.W_OK) and not held(path):
            path.unlink(missing_ok=True)
            fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
            try:
                os.fchmod(fd, 0o644)  # whatever the umask
            finally:
                os.close(fd)


def _take(fd: int, path: Path, wait_s: float, doing: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not time.monotonic() < deadline:  # also for `--wait nan`, which would wait for ever
                raise _busy(fd, path, wait_s, doing) from None
        time.sleep(_PAUSE_S)


def _busy(fd: int, path: Path, wait_s: float, doing: str) -> StoreBusy:
    holder = os.pread(fd, 400, 0).decode(errors="replace")
    return StoreBusy(
        f"{doing}, waited {wait_s:g} s", where=os.fspath(path.parent),
        found=holder or "a process that does not say its name", remedy="wait for it, or end it, and try again",
    )  # fmt: skip
