# SPDX-License-Identifier: Apache-2.0
"""Small files below one root directory: `/` of this machine, or a recording of another one.

It starts no process, opens no socket and never reads outside the root: links of a recording are followed as if its
folder were `/`. What cannot be read is None; the reason is kept.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from dpfedge import limits

__all__ = ["Root", "core_list", "label", "whole"]

_LINKS_MAX = 40  # as the kernel's own path walk
_TEXTS_MAX = 64  # a device tree's root has under ten names
_LABEL_MAX = 200
_DIGITS_MAX = 18  # fits 64 bits
_NUMBER_MAX = 20  # -9223372036854775808, 18446744073709551615, 0xffffffffffffffff
_KINDS = {stat.S_IFDIR: "Is a directory", stat.S_IFIFO: "a pipe, not a file", stat.S_IFSOCK: "a socket, not a file"}


class Root:
    """Reads files by their path relative to the root, for example `proc/cpuinfo`."""

    def __init__(self, sysroot: str | Path = "/") -> None:
        self.path = os.path.realpath(sysroot)
        self.live = self.path == "/"
        """The root is this machine, so that what the kernel tells the process counts too."""
        self.unreadable: dict[str, str] = {}
        """Paths that exist but gave nothing or not all, and why (EACCES, EAGAIN of a gated sensor, …)."""
        self._folders: dict[str, str | None] = {"": self.path}

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
            if not self.live and (kind := stat.S_IFMT(os.lstat(place).st_mode)) != stat.S_IFREG:
                self.unreadable[path] = _KINDS.get(kind, "a device, not a file")
                return None
            # os.read, because buffered text reads of a gated sensor (EAGAIN) end in TypeError instead of OSError
            descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            self._missing(path, error)
            return None
        try:
            data = _read(descriptor)
        except OSError as error:
            self._missing(path, error)
            return None
        finally:
            os.close(descriptor)
        if len(data) == limits.PROBE_FILE_MAX_BYTES:
            self.unreadable[path] = f"only its first {limits.PROBE_FILE_MAX_BYTES} bytes were read"
        return data

    def number(self, path: str, base: int = 10) -> int | None:
        """The file's one integer, of 64 bits; longer ones no kernel writes."""
        text = self.text(path)
        try:
            if text is None or len(text) <= _NUMBER_MAX:
                return None if text is None else int(text, base)
        except ValueError:
            pass  # told below
        self.unreadable[path] = f"no number: {text!r:.40}"
        return None

    def texts(self, path: str) -> tuple[str, ...]:
        """The texts of a device tree string list, in order."""
        parts = [part for part in (self.bytes(path) or b"").rstrip(b"\0\n").split(b"\0") if part]
        return tuple(label(part.decode("utf-8", "replace")) for part in parts[:_TEXTS_MAX])

    def names(self, path: str) -> tuple[str, ...]:
        """The sorted entries of a directory, at most `limits.PROBE_ENTRIES_MAX`; none when it is missing."""
        place = self._place(path)
        if place is None:
            return ()
        try:
            with os.scandir(place) as entries:
                found = [entry.name for entry in islice(entries, limits.PROBE_ENTRIES_MAX)]
        except OSError as error:
            self._missing(path, error)
            return ()
        if len(found) == limits.PROBE_ENTRIES_MAX:
            self.unreadable[path] = f"only {limits.PROBE_ENTRIES_MAX} of its entries were read"
        return tuple(sorted(found))

    def link(self, path: str) -> str | None:
        """Where a symbolic link says it leads, unfollowed; None for what is none."""
        head, _, name = path.rpartition("/")
        folder = self._place(f"{head}/.")
        try:
            return None if folder is None else label(os.readlink(os.path.join(folder, name)))
        except OSError:  # nothing there, or no link: who reads the file is told why
            return None

    def has(self, path: str) -> bool:
        """Whether something is there."""
        place = self._place(path)
        return place is not None and os.path.lexists(place)

    def _place(self, path: str) -> str | None:
        if self.live:
            return os.path.join(self.path, path)
        # A recording is foreign data: its links, absolute ones above all, must not lead to this machine's files.
        head, _, name = path.rpartition("/")
        if head not in self._folders:
            self._folders[head] = self._resolve(head, path)
        folder = self._folders[head]
        return None if folder is None else self._resolve(f"{folder[len(self.path) :]}/{name}", path)

    def _resolve(self, inner: str, asked: str) -> str | None:
        """Where `inner` leads with every link followed inside the root; None, with a note, when it never ends."""
        ahead, done, links = inner.split("/")[::-1], list[str](), 0
        while ahead:
            part = ahead.pop()
            if part in ("", ".", ".."):
                del done[len(done) - (part == "..") :]
                continue
            try:
                link = os.readlink("/".join([self.path, *done, part]))
            except OSError:  # no link, or nothing there: opening it will tell
                done.append(part)
                continue
            links += 1
            if links > _LINKS_MAX:
                self.unreadable[asked] = "too many links"
                return None
            if link.startswith("/"):
                done.clear()
            ahead += link.split("/")[::-1]
        return "/".join([self.path, *done])

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


def whole(text: str) -> int | None:
    """The number in plain decimal digits; None for anything else and for one beyond 64 bits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX else None


def label(text: str) -> str:
    """A name as a person may see it: short, on one line, and with nothing in it that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text[:_LABEL_MAX]).strip()


def core_list(text: str | None) -> tuple[int, ...]:
    """The cores in a kernel list such as `0-3,8`; what is not one gives none."""
    cores: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        start, end = whole(first), whole(last or first)
        if start is None or end is None or end > limits.CORES_MAX:
            return ()
        cores.update(range(start, end + 1))
    return tuple(sorted(cores))
