# SPDX-License-Identifier: Apache-2.0
"""Load and memory of the running machine, looked at many times a second: two files of the kernel in, a `Health` out.

Where this process's cgroups leave less, as in a container, what they say counts: `/proc` tells of the whole machine.
The files stay open: a look is a read at offset 0, about a tenth of what opening and taking the whole text apart
costs. It judges nothing.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from dpfedge.backend.api import Health
from dpfedge.backend.sensors import GroupSensors
from dpfedge.errors import BackendError

__all__ = ["MachineHealth"]

_LOAD_S = 1.0  # the kernel makes a new load average every five seconds
_MOST_BYTES = 4096  # of meminfo; what is asked stands in its first three lines


class MachineHealth:
    """Looks at one machine; by any number of threads."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc, self._cores = root / "proc", os.cpu_count() or 1  # the count is a file, too: it is read once
        self._groups = GroupSensors(root)
        self._load, self._load_until = 0.0, 0.0
        self._files: dict[str, int] = {}
        self._process, self._opening = os.getpid(), threading.Lock()

    def look(self) -> Health:
        """Load average over cores, and available over total memory; BackendError or OSError where nobody tells.

        Or processor time used over a quota's, where that is more, and what is left of a limit, where that is less.
        """
        if (now := time.monotonic()) >= self._load_until:
            self._load, self._load_until = self._busy(), now + _LOAD_S
        memory = self._read("meminfo")
        total, free = _kibibytes(memory, b"MemTotal:"), _kibibytes(memory, b"MemAvailable:")
        group, share = self._groups.sample(), min(1.0, free / max(1, total))
        left = share if group.memory_free is None else min(share, group.memory_free)
        return Health(max(self._load, group.utilisation or 0.0), left)

    def _busy(self) -> float:
        try:
            return min(1.0, float(self._read("loadavg").split(b" ", 1)[0]) / self._cores)
        except ValueError:
            raise _untold("loadavg", "no number") from None

    def _read(self, name: str) -> bytes:
        if self._process != os.getpid():  # a fork may have closed them: their numbers can be others' by now
            with self._opening:
                self._files, self._process = {}, os.getpid()
        fd = self._files.get(name)
        return os.pread(self._open(name) if fd is None else fd, _MOST_BYTES, 0)

    def _open(self, name: str) -> int:
        with self._opening:
            if name not in self._files:
                self._files[name] = os.open(self._proc / name, os.O_RDONLY | os.O_CLOEXEC)
            return self._files[name]

    def close(self) -> None:
        """Give the descriptors back; a later look opens them again."""
        with self._opening:
            files, self._files = self._files, {}
        for fd in files.values():
            os.close(fd)


def _kibibytes(text: bytes, name: bytes) -> int:
    at = text.find(name)
    try:
        return int(text[at + len(name) : text.index(b"kB", at)]) if at >= 0 else _none(name)
    except ValueError:
        raise _untold("meminfo", f"{name.decode()} without a number") from None


def _none(name: bytes) -> int:
    raise _untold("meminfo", f"no line {name.decode()}")


def _untold(file: str, found: str) -> BackendError:
    return BackendError("the kernel does not tell", where=f"/proc/{file}", found=found, remedy="look at the file")
