# SPDX-License-Identifier: Apache-2.0
"""The file of a flight recorder: records written in place into a mapped file of fixed size, read back after a crash.

FLIGHT.md is the format. It knows no request and no stage; `recorder.py` says what is recorded. The writer asks the
kernel for nothing once the file is there, so whatever was written is in the file when the process is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import cbor2

from dpfedge.errors import FormatError, UsageError
from dpfedge.limits import FLIGHT_MAX_BYTES, FLIGHT_MAX_SECONDS
from dpfedge.records import dataclass

__all__ = ["LANES", "FlightFile", "Lane", "Record", "RecordKind", "Recording", "lane_bytes"]

MAGIC, VERSION = b"DPFLIGHT", 1
LANES = 3
_HEADER_BYTES, _DESCRIBED_AT, _DESCRIBED_BYTES, _DESCRIBED = 4096, 1024, 1024, 3
_HEADER = struct.Struct("<8sIIQQQQI")  # magic, version, lanes, lane bytes, seconds, wall ns, monotonic ns, pid
_DESCRIPTION = struct.Struct("<II")  # bytes, crc
_RECORD = struct.Struct("<4sIQQHBBI")  # magic, bytes, position, at ns, runtime, kind, link, payload bytes
_CRC = struct.Struct("<II")  # crc of all before it and of the payload, 0
_RECORD_BYTES, _RECORD_MAGIC = _RECORD.size + _CRC.size, b"DPFR"
_BYTES_PER_S, _BYTES_PER_S_AUDIO = 32 << 10, 128 << 10
_LANE_MIN_BYTES = 2 << 20  # room for four of the longest messages


class RecordKind(IntEnum):
    """What a record tells; the numbers are part of the format."""

    OPENED = 1
    CLOSED = 2
    CANCELLED = 3
    SENT = 4
    RECEIVED = 5
    STAGE_DIED = 6
    STAGE_READY = 7
    ENDED = 8


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `at_ns` is CLOCK_MONOTONIC, `link` an index into the runtime's links, `runtime` counts from 0."""

    kind: RecordKind
    at_ns: int
    runtime: int
    link: int
    payload: bytes


def lane_bytes(seconds: int, audio: bool) -> int:
    """Size of a lane that holds `seconds`: 300 messages/s, or 128 KiB/s with audio (two conversations at once)."""
    if not 1 <= seconds <= FLIGHT_MAX_SECONDS:
        allowed = f"1 to {FLIGHT_MAX_SECONDS}"
        raise UsageError("no such length", where="--flight-seconds", found=seconds, allowed=allowed)
    return max(_LANE_MIN_BYTES, seconds * (_BYTES_PER_S_AUDIO if audio else _BYTES_PER_S))


class Lane:
    """One writer's part of the file; used by one thread at a time, and therefore without a lock."""

    def __init__(self, memory: mmap.mmap, start: int, size: int) -> None:
        self._memory, self._start, self._size = memory, start, size
        self._position = 0
        self.too_long = 0
        """Records that were left out because they are longer than a quarter of the lane."""

    def write(self, kind: RecordKind, runtime: int, link: int, payload: bytes) -> None:
        """Write one record; the oldest ones make room."""
        size = _RECORD_BYTES + len(payload) + 7 & ~7
        if 4 * size > self._size:
            self.too_long += 1
            return
        at = self._position % self._size
        if at + size > self._size:
            self._position += self._size - at
            at = 0
        head = _RECORD.pack(
            _RECORD_MAGIC, size, self._position, time.monotonic_ns(), runtime & 0xFFFF, kind, link, len(payload)
        )
        crc = _CRC.pack(zlib.crc32(payload, zlib.crc32(head)), 0)
        begin = self._start + at
        self._memory[begin : begin + _RECORD_BYTES + len(payload)] = head + crc + payload
        self._position += size


class FlightFile:
    """A recording being written. `lanes` are its parts: one for each thread that writes."""

    def __init__(self, path: Path, seconds: int, *, audio: bool) -> None:
        """Make the file, all of its bytes reserved. A recording that is there already is kept as `PATH.previous`.

        UsageError: no place for it, or the path holds something else.
        """
        self.path = path
        size = lane_bytes(seconds, audio)
        _keep_previous(path)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _cannot(path, error) from error
        total = _HEADER_BYTES + LANES * size
        try:
            os.posix_fallocate(fd, 0, total)  # a full disk is an error now, and no signal later
            self._memory = mmap.mmap(fd, total)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this process ends
        except OSError as error:
            path.unlink(missing_ok=True)
            os.close(fd)
            raise _cannot(path, error, f"{total} bytes") from error
        self._fd = fd
        head = (MAGIC, VERSION, LANES, size, seconds, time.time_ns(), time.monotonic_ns(), os.getpid())
        self._memory[: _HEADER.size] = _HEADER.pack(*head)
        self.lanes = tuple(Lane(self._memory, _HEADER_BYTES + n * size, size) for n in range(LANES))

    def describe(self, runtime: int, facts: Mapping[str, Any]) -> None:
        """Note what a runtime is: package, links. It takes the place of the third one before it."""
        data = cbor2.dumps({"runtime": runtime, **facts})[: _DESCRIBED_BYTES - _DESCRIPTION.size]
        at = _DESCRIBED_AT + runtime % _DESCRIBED * _DESCRIBED_BYTES
        whole = _DESCRIPTION.pack(len(data), zlib.crc32(data)) + data
        self._memory[at : at + len(whole)] = whole

    def close(self) -> None:
        """Unmap it; the file stays."""
        self._memory.close()
        os.close(self._fd)


def _keep_previous(path: Path) -> None:
    try:
        with path.open("rb") as file:
            found = file.read(len(MAGIC))
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return
    except BlockingIOError as error:
        what = "another server records into this file"
        raise UsageError(what, where=f"--flight-recorder {path}", remedy="name another file") from error
    except OSError as error:
        raise _cannot(path, error) from error
    if found != MAGIC:
        remedy = "name another file"
        raise UsageError("exists and is no recording", where=f"--flight-recorder {path}", remedy=remedy)
    try:
        path.replace(path.with_name(path.name + ".previous"))
    except OSError as error:
        raise _cannot(path, error) from error


def _cannot(path: Path, error: OSError, wanted: str | None = None) -> UsageError:
    return UsageError(
        f"cannot be written: {error.strerror}", where=f"--flight-recorder {path}", allowed=wanted,
        remedy="name a file on a disk with room for it",
    )  # fmt: skip


class Recording:
    """A recording, read: also one that is being written, or whose writer was killed in mid record."""

    def __init__(self, path: Path) -> None:
        """FormatError: it is none, or its header makes no sense. Torn records are left out."""
        data = _read(path)
        where = str(path)
        if len(data) < _HEADER_BYTES or not data.startswith(MAGIC):
            raise FormatError("not a flight recording", where=where, allowed="a file that --flight-recorder wrote")
        _, version, lanes, size, self.seconds, self._wall_ns, self._monotonic_ns, self.pid = _HEADER.unpack_from(data)
        if version != VERSION:
            raise FormatError("unknown version", where=where, found=version, allowed=VERSION)
        if lanes != LANES or len(data) != _HEADER_BYTES + lanes * size:
            raise FormatError("the size does not fit the header", where=where, found=f"{len(data)} bytes")
        self.runtimes = dict(_descriptions(data))
        found = [list(_lane(memoryview(data)[_HEADER_BYTES + n * size :][:size])) for n in range(lanes)]
        self.complete_since_ns = tuple(_since(lane) for lane in found)
        """For each lane: the time since which nothing was overwritten."""
        self.records = sorted((record for lane in found for _, record in lane), key=lambda record: record.at_ns)
        """Oldest first; in the order written where one thread wrote them."""

    def wall_ns(self, at_ns: int) -> int:
        """The time of day of a record, in ns since 1970, by the clock when the recording began."""
        return int(self._wall_ns + at_ns - self._monotonic_ns)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > FLIGHT_MAX_BYTES:
            raise FormatError("not a flight recording", where=str(path), allowed=f"up to {FLIGHT_MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise UsageError("the recording cannot be read", where=str(path), found=error.strerror) from error


def _descriptions(data: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for n in range(_DESCRIBED):
        at = _DESCRIBED_AT + n * _DESCRIBED_BYTES
        size, crc = _DESCRIPTION.unpack_from(data, at)
        text = data[at + _DESCRIPTION.size : at + _DESCRIPTION.size + min(size, _DESCRIBED_BYTES)]
        if size and zlib.crc32(text) == crc:
            with contextlib.suppress(cbor2.CBORDecodeError):
                facts = cbor2.loads(text)
                if isinstance(facts, dict) and isinstance(facts.get("runtime"), int):
                    yield facts["runtime"], facts


def _lane(lane: memoryview) -> list[tuple[int, Record]]:
    """Position and record of every whole record, oldest first."""
    data, at = bytes(lane), 0
    found: list[tuple[int, Record]] = []
    while (at := data.find(_RECORD_MAGIC, at)) >= 0:
        one = _record(data, at)
        if one is None:
            at += 4
            continue
        size, position, record = one
        found.append((position, record))
        at += size
    found.sort(key=lambda pair: pair[0])
    newest = found[-1][0] if found else 0
    return [pair for pair in found if pair[0] > newest - len(data)]


def _record(data: bytes, at: int) -> tuple[int, int, Record] | None:
    """Size, position and record at an offset; None where no whole one is."""
    if at % 8 or at + _RECORD_BYTES > len(data):
        return None
    _, size, position, at_ns, runtime, kind, link, used = _RECORD.unpack_from(data, at)
    crc, _ = _CRC.unpack_from(data, at + _RECORD.size)
    payload = data[at + _RECORD_BYTES : at + _RECORD_BYTES + used]
    fits = position % len(data) == at and size == _RECORD_BYTES + used + 7 & ~7 and len(payload) == used
    if not fits or crc != zlib.crc32(payload, zlib.crc32(data[at : at + _RECORD.size])) or kind not in set(RecordKind):
        return None
    return int(size), int(position), Record(RecordKind(kind), at_ns, runtime, link, payload)


def _since(lane: list[tuple[int, Record]]) -> int:
    position, oldest = lane[0] if lane else (0, None)
    return oldest.at_ns if oldest is not None and position else 0
