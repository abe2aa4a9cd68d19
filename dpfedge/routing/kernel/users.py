# SPDX-License-Identifier: Apache-2.0
"""Which processes use which accelerator: names below /dev in, processes that have one open out.

The kernel tells who opens one, where it takes the program; /proc tells who has it open still. Without the program all
of /proc is looked through at each look, and what was opened and closed in between is not seen. It judges nothing.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dpfedge.errors import Unavailable
from dpfedge.routing.kernel.libbpf import CGROUP_TYPES, Loaded, Program, link
from dpfedge.routing.kernel.support import cgroup_of, check_machine, object_bytes

__all__ = ["DEVICES", "DeviceUsers", "Use"]

DEVICES = ("nvidia*", "mali0", "dri/*", "kfd")
"""What is watched, below /dev."""

_PROGRAM = Program("rh_device_opened", *CGROUP_TYPES["device"])
_OPENER, _OPENS = struct.Struct("=III"), struct.Struct("=QQ")
_OPENERS_MAX = 4096
_EVERY_S = 10.0  # how often all of /proc is looked through where the kernel tells: for those who inherit an open device

_Number = tuple[int, int]
_Opened = dict[tuple[int, _Number], tuple[int, int]]
"""Process and device → how often, and when last."""


@dataclass(frozen=True, slots=True)
class Use:
    """A process and a device."""

    device: str
    pid: int
    name: str
    open: bool = True
    """False: it opened the device since the last look, and has closed it."""
    opens: int | None = None
    """How often it was seen to open the device; None where only /proc tells."""


class DeviceUsers:
    """Watches until it is closed; `look` says who uses what now."""

    def __init__(
        self, *, devices: Sequence[str] = DEVICES, dev: Path = Path("/dev"), proc: Path = Path("/proc"),
        kernel: bool = True,
    ) -> None:  # fmt: skip
        """`kernel`: have it tell, if it takes the program; `why` says why it does not."""
        self._devices, self._dev, self._proc = devices, dev, proc
        self._loaded: Loaded | None = None
        self._link, self._full_at, self._last_ns = -1, 0.0, 0
        self._pids: set[int] = set()
        self.unreadable = 0
        self.why = "" if kernel else "not asked to"
        if kernel and not self._numbers():
            self.why = "no such device is here"
        elif kernel:
            try:
                self._attach()
            except (Unavailable, OSError) as error:
                self.why = str(error)
                self.close()

    def _attach(self) -> None:
        check_machine()
        place = os.open(cgroup_of(None), os.O_RDONLY | os.O_CLOEXEC)
        try:
            self._loaded = Loaded(object_bytes("devices"), [_PROGRAM])
            self._link = link(self._loaded.program(_PROGRAM.name), place, _PROGRAM.attach, "the device program")
        finally:
            os.close(place)
        self._last_ns = time.monotonic_ns()
        self._watch(self._numbers())

    def _numbers(self) -> dict[_Number, str]:
        """The devices that are here: number → path."""
        found: dict[_Number, str] = {}
        for pattern in self._devices:
            for path in sorted(self._dev.glob(pattern)):
                with contextlib.suppress(OSError):  # it went away
                    known = path.stat()
                    if stat.S_ISCHR(known.st_mode):
                        found[os.major(known.st_rdev), os.minor(known.st_rdev)] = str(path)
        return found

    def _watch(self, numbers: Iterable[_Number]) -> None:
        if self._loaded is not None:
            for number in numbers:
                with contextlib.suppress(OSError):  # more devices than there is room for: /proc tells of these
                    self._loaded.put("rh_watched", struct.pack("=II", *number), bytes(4))

    def look(self) -> list[Use]:
        """Who uses what: by device, then by process."""
        numbers, opened = self._numbers(), _Opened()
        if not numbers:
            return []
        if self._loaded is not None:
            self._watch(numbers)
            opened = self._opened(self._loaded)
        now = time.monotonic()
        full = self._loaded is None or now >= self._full_at
        if full:
            self._full_at, self.unreadable = now + _EVERY_S, 0
            pids = {int(one.name) for one in self._proc.iterdir() if one.name.isdigit()}
        else:
            pids = self._pids | {pid for pid, _ in opened}
        uses = [use for pid in pids for use in self._of(pid, numbers, opened)]
        self._pids = {one.pid for one in uses if one.open}
        before, self._last_ns = self._last_ns, time.monotonic_ns()
        there = {(one.pid, one.device) for one in uses}
        for (pid, number), (count, last_ns) in opened.items():
            path = numbers.get(number)
            if path is not None and last_ns >= before and (pid, path) not in there:
                uses.append(Use(path, pid, self._name(pid), False, count))
        return sorted(uses, key=lambda use: (use.device, use.pid))

    def _of(self, pid: int, numbers: dict[_Number, str], opened: _Opened) -> Iterator[Use]:
        folder = self._proc / str(pid)
        seen: set[_Number] = set()
        try:
            for one in os.listdir(folder / "fd"):
                with contextlib.suppress(FileNotFoundError):  # it was closed
                    path = folder / "fd" / one
                    if not os.readlink(path).startswith("/dev/"):
                        continue  # a look at a file of a network that hangs would hang too
                    known = path.stat()
                    number = os.major(known.st_rdev), os.minor(known.st_rdev)
                    if stat.S_ISCHR(known.st_mode) and number in numbers and number not in seen:
                        seen.add(number)
            name = self._name(pid) if seen else ""
        except PermissionError:
            self.unreadable += 1  # somebody else's
            return
        except OSError:
            return  # it ended
        for number in seen:
            yield Use(numbers[number], pid, name, True, opened[pid, number][0] if (pid, number) in opened else None)

    def _name(self, pid: int) -> str:
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="backslashreplace").strip()
        except OSError:
            return ""  # it ended

    def _opened(self, loaded: Loaded) -> _Opened:
        found: _Opened = {}
        for key in loaded.keys("rh_openers", _OPENER.size, _OPENERS_MAX):
            pid, major, minor = _OPENER.unpack(key)
            value = loaded.get("rh_openers", key, _OPENS.size)
            if value is not None:
                found[pid, (major, minor)] = _OPENS.unpack(value)
        return found

    def figures(self) -> dict[str, Any]:
        """A look as plain data: who tells, why not the kernel, whose processes could not be looked at."""
        uses = [asdict(one) for one in self.look()]
        told = "kernel" if self._loaded is not None else "/proc"
        return {"by": told, "why": self.why, "unreadable": self.unreadable, "uses": uses}

    def close(self) -> None:
        """Watch no more."""
        if self._link >= 0:
            os.close(self._link)
            self._link = -1
        if self._loaded is not None:
            self._loaded.close()
            self._loaded = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
