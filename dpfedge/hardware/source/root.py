# SPDX-License-Identifier: Apache-2.0
"""Small files below one root directory: `/` of this machine, or a recording of another one.

It starts no process, opens no socket and never reads outside the root. What cannot be read is None; the reason is kept.
"""

from __future__ import annotations

import os
from pathlib import Path

from dpfedge import limits

__all__ = ["Root", "core_list"]


class Root:
    """Reads files by their path relative to the root, for example `proc/cpuinfo`."""

    def __init__(self, sysroot: str | Path = "/") -> None:
        self.path = os.path.realpath(sysroot)
        self.live = self.path == "/"
        """The root is this machine, so that what the kernel tells the process counts too."""
        self.unreadable: dict[str, str] = {}
        """Paths that exist but gave nothing, and why (EACCES, EAGAIN of a gated sensor, …)."""

    def text(self, path: str) -> str | None:
        """The file's text, without surrounding white space and NUL bytes."""
        data = self.bytes(path)
        return None if data is None else data.decode("utf-8", "replace").strip("\0 \t\n")

    def bytes(self, path: str) -> bytes | None:
        """The file's bytes, at most `limits.PROBE_FILE_MAX_BYTES` of them."""
        place = self._place(path)
        if place is None:
            return None
        try:
            # os.read, because buffered text reads of a gated sensor (EAGAIN) end in TypeError instead of OSError
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._missing(path, error)
            return None
        try:
            return _read(descriptor)
        except OSError as error:
            self._missing(path, error)
            return None
        finally:
            os.close(descriptor)

    def number(self, path: str, base: int = 10) -> int | None:
        """The file's one integer."""
        text = self.text(path)
        try:
            return None if text is None else int(text, base)
        except ValueError:
            self.unreadable[path] = f"no number: {text!r:.40}"
            return None

    def texts(self, path: str) -> tuple[str, ...]:
        """The texts of a device tree string list, in order."""
        data = self.bytes(path) or b""
        return tuple(part.decode("utf-8", "replace") for part in data.rstrip(b"\0\n").split(b"\0") if part)

    def names(self, path: str) -> tuple[str, ...]:
        """The sorted entries of a directory; none when it is missing."""
        place = self._place(path)
        try:
            return tuple(sorted(os.listdir(place))) if place is not None else ()
        except OSError as error:
            self._missing(path, error)
            return ()

    def has(self, path: str) -> bool:
        """Whether something is there."""
        place = self._place(path)
        return place is not None and os.path.exists(place)

    def _place(self, path: str) -> str | None:
        joined = os.path.join(self.path, path)
        if self.live:
            return joined
        # A recording is foreign data: its links, absolute ones above all, must not lead to this machine's files.
        real = os.path.realpath(joined)
        if real == self.path or real.startswith(self.path + os.sep):
            return real
        self.unreadable[path] = "the link leaves the recording"
        return None

    def _missing(self, path: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            self.unreadable[path] = error.strerror or type(error).__name__


def _read(descriptor: int) -> bytes:
    parts: list[bytes] = []
    left = limits.PROBE_FILE_MAX_BYTES
    while left > 0 and (part := os.read(descriptor, min(left, 1 << 16))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def core_list(text: str | None) -> tuple[int, ...]:
    """The cores in a kernel list such as `0-3,8`; what is not one gives none."""
    cores: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or int(last or first) > limits.CORES_MAX:
            return ()
        cores.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(cores))
