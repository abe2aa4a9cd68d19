# SPDX-License-Identifier: Apache-2.0
"""The salt of the day: 32 random bytes that all processes of a user share, and that nobody has any more a day later.

It hashes nothing. What happens when clocks step is said in `dpfedge/hardware/FINGERPRINT.md`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpfedge.hardware.source.root import Root
from dpfedge.store.places import runtime_folder

__all__ = ["DailySalt", "Moment", "Salt", "now", "salt_path"]

_BYTES, _DAY_S, _FILE_MAX = 32, 86400, 4096
_TRIES, _PAUSE_S = 50, 0.01


def salt_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the user's salt is: beside the routing table, on a file system that a reboot empties."""
    return runtime_folder(environ) / "route" / "salt"


@dataclass(frozen=True, slots=True)
class Moment:
    """What the clocks say. Seconds; the wall clock's may be anything."""

    wall_s: int
    since_boot_s: int
    """CLOCK_BOOTTIME, which counts suspended time too and never steps."""
    boot: str
    """Which boot that is."""

    @property
    def day(self) -> int:
        """Days since 1970, UTC; below 0 before."""
        return self.wall_s // _DAY_S


def now(root: Root | None = None) -> Moment:
    """The clocks of this machine."""
    boot = (root or Root()).text("proc/sys/kernel/random/boot_id") or ""
    return Moment(time.time_ns() // 10**9, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 10**9, boot)


@dataclass(frozen=True, slots=True)
class Salt:
    """The salt that counts now."""

    value: bytes
    made: Moment
    shared: bool = True
    """False: it could not be written down, and is this process's own."""

    def fits(self, at: Moment) -> bool:
        """Whether it is still the day's: same boot, same day by the wall clock, not older than a day by the other."""
        age = at.since_boot_s - self.made.since_boot_s
        return at.boot == self.made.boot and at.day == self.made.day and 0 <= age < _DAY_S


class DailySalt:
    """Gives the salt of the day, and makes a new one when the last one's time is over. Safe for processes."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: where it is shared, the user's place by default."""
        self._path = salt_path() if path is None else path
        self._own: Salt | None = None

    def get(self, at: Moment) -> Salt:
        """The salt at that moment; one of this process's own where none can be shared, which `shared` tells."""
        try:
            with self._locked() as fd:
                return self._shared(fd, at)
        except OSError:
            if self._own is None or not self._own.fits(at):
                self._own = Salt(os.urandom(_BYTES), at, shared=False)
            return self._own

    def _shared(self, fd: int, at: Moment) -> Salt:
        there = _parse(os.pread(fd, _FILE_MAX, 0))
        if there is not None and there.fits(at):
            return there
        fresh = Salt(os.urandom(_BYTES), at)
        row = {"salt": fresh.value.hex(), "wall_s": at.wall_s, "since_boot_s": at.since_boot_s, "boot": at.boot}
        data = json.dumps(row).encode()
        os.pwrite(fd, data, 0)  # over the old one, which is gone with this
        os.ftruncate(fd, len(data))
        return fresh

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, for this process alone; OSError when it cannot be had within half a second."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            if os.fstat(fd).st_uid != os.getuid():
                raise PermissionError("the salt is somebody else's")
            os.fchmod(fd, 0o600)
            for last in range(_TRIES):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:  # whoever holds it may have been stopped: nobody waits for ever
                    if last == _TRIES - 1:
                        raise
                    time.sleep(_PAUSE_S)
            yield fd
        finally:
            os.close(fd)


def _parse(data: bytes) -> Salt | None:
    """None for what is no salt of ours: an empty new file, or what a writer that died left."""
    try:
        row: Any = json.loads(data)
        made = Moment(int(row["wall_s"]), int(row["since_boot_s"]), str(row["boot"]))
        salt = Salt(bytes.fromhex(row["salt"]), made)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return salt if len(salt.value) == _BYTES else None
