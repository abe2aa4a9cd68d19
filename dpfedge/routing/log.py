# SPDX-License-Identifier: Apache-2.0
"""The log of a router: one JSON line for each change of the table and each decision, from which all can be proved.

It writes and reads lines; `replay.py` proves them. The format is in `ROUTING.md`.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from dpfedge import limits
from dpfedge.errors import RouteError

__all__ = ["FORMAT", "VERSION", "RouteLog", "id_text", "read_log", "text_id"]

FORMAT, VERSION = "dpfedge-route-log", 1


def id_text(id: str | bytes) -> str | dict[str, str]:
    """An id as JSON: text where it is UTF-8, else `{"hex": …}`."""
    if isinstance(id, str):
        return id
    try:
        return id.decode()
    except UnicodeDecodeError:
        return {"hex": id.hex()}


def text_id(value: Any) -> str | bytes:
    """The id that was written so; ValueError when it is none."""
    if isinstance(value, dict) and value.keys() == {"hex"}:
        return bytes.fromhex(value["hex"])
    if not isinstance(value, str):
        raise ValueError("an id is text, or {hex: …}")
    return value


class RouteLog:
    """Appends lines to a file; when it is full the file becomes `FILE.1` and a new one begins with all that stands.

    A line is written at once and whole; it is not synced. Lines that a full disk refuses are counted, and the log says
    how many there were when it can be written again: no request fails for its log. Safe for threads.
    """

    def __init__(self, path: Path, *, ids: bool = False, max_bytes: int = limits.ROUTE_LOG_MAX_BYTES) -> None:
        """`ids`: write models and users of decisions too, not only their hash. RouteError when it cannot be written."""
        self.path, self.ids, self.lost = path, ids, 0
        self._max, self._lock = max_bytes, threading.Lock()
        self._begin: Mapping[str, Any] | None = None
        self._full = False  # and there is no other file yet
        self._torn = False  # the file may end within a line
        self._fd, self._size = self._open()

    def begin(self, state: Mapping[str, Any]) -> None:
        """The first line of a log, or of the rest of one: `bits`, `key_seed`, `generation`, `instances`, `digest`."""
        with self._lock:
            self._begin = state
            self._write({"log": FORMAT, "version": VERSION, **state})

    def change(self, line: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """A change of one instance; `state` is what `begin` would be told now."""
        with self._lock:
            self._begin = state
            if not self._turn():
                self._write({"change": line})

    def decision(self, line: Mapping[str, Any]) -> None:
        """One decision."""
        with self._lock:
            self._turn()
            self._write({"decision": line})

    def close(self) -> None:
        """End it; what is written later is lost."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> tuple[int, int]:
        """The file, and its size."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            return fd, _whole_lines(fd)
        except OSError as error:
            raise RouteError(f"the log cannot be written: {error.strerror}", where=str(self.path)) from error

    def _turn(self) -> bool:
        """Begin a new file when this one is full; the state that stands is its first line."""
        if self._size < self._max or self._begin is None:
            return False
        self._full = True
        try:
            with contextlib.suppress(FileNotFoundError):  # it is there already, or somebody took it away
                os.replace(self.path, f"{self.path}.1")
            fresh = self._open()
        except (OSError, RouteError):  # no file for now: the line is lost, and the next one tries again
            return False
        self._end()
        (self._fd, self._size), self._full = fresh, False
        self._write({"log": FORMAT, "version": VERSION, **self._begin})
        return True

    def _write(self, line: Mapping[str, Any]) -> None:
        lines = [line] if not self.lost else [{"lost": self.lost}, line]
        lines.sort(key=lambda one: "log" not in one)  # a file begins with what it is
        now = time.time_ns() // 1_000_000
        data = b"".join(
            json.dumps({"at": now, **one}, ensure_ascii=False).encode(errors="replace") + b"\n" for one in lines
        )
        if not self._full and self._mend() and self._append(data):
            self.lost = 0
            return
        self.lost += 1
        self._mend()

    def _append(self, data: bytes) -> bool:
        self._torn = True
        try:
            if os.write(self._fd, data) != len(data):
                return False
        except OSError:
            return False
        self._size, self._torn = self._size + len(data), False
        return True

    def _mend(self) -> bool:
        """Cut off what a write that failed left; whether the file ends with a whole line."""
        if self._torn:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
                self._torn = False
        return not self._torn


def _whole_lines(fd: int) -> int:
    """Cut off the last line if its writer died in it; the size of the rest."""
    end = size = os.fstat(fd).st_size
    while end > 0 and os.pread(fd, 1, end - 1) != b"\n":
        end -= 1
    if end < size:
        os.ftruncate(fd, end)
    return end


def read_log(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines of a log, numbered from 1; RouteError says where one is no line of a log.

    A last line without an end, of a writer that died, is left out.
    """
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(limits.ROUTE_LINE_MAX_BYTES):
                number += 1
                if not data.endswith(b"\n"):
                    if len(data) == limits.ROUTE_LINE_MAX_BYTES:
                        raise RouteError("the line is too long", where=f"{path}:{number}")
                    return
                yield number, _line(data, f"{path}:{number}")
    except OSError as error:
        raise RouteError("the log cannot be read", where=str(path), found=error.strerror) from error


def _line(data: bytes, where: str) -> dict[str, Any]:
    try:
        line = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise RouteError("the line is no JSON", where=where, found=str(error)) from error
    if not isinstance(line, dict) or not line.keys() & {"log", "change", "decision", "lost"}:
        raise RouteError("this is no line of a routing log", where=where, allowed="log, change, decision, lost")
    if "log" in line and (line["log"], line.get("version")) != (FORMAT, VERSION):
        found = f"{line['log']!r} {line.get('version')!r}"
        raise RouteError("the log is of another version", where=where, found=found, allowed=f"{FORMAT!r} {VERSION}")
    return line
