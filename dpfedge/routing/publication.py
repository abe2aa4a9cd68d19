# SPDX-License-Identifier: Apache-2.0
"""The published table: one process writes it into shared memory, every process of the host reads it without a lock.

Two buffers and a generation, as `ROUTING.md` specifies; filling and reading are C. It decides nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Self

from dpfedge import _core
from dpfedge.errors import NoInstance, RouteError, Unavailable
from dpfedge.routing.key import BITS, KEY_SEED
from dpfedge.store.places import runtime_folder

__all__ = [
    "CAPACITY", "ENTRY_BYTES", "Entry", "Published", "Publisher", "default_path", "name_of", "server_path",
    "server_tables",
]  # fmt: skip

CAPACITY = 1024
"""Instances a published table has room for, unless said."""

_ENTRY = struct.Struct("=Q4s2s5H256s")
ENTRY_BYTES = _ENTRY.size
_SIZE_AT, _NAME_AT = 22, 24
_USED, _HEALTHY = 1, 2
_REMEDY = "ask `dpfedge route explain --help` where tables come from"


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the host's table is: `route/table` in the user's run directory."""
    return runtime_folder(environ) / "route" / "table"


def server_path(port: int, environ: Mapping[str, str] = os.environ) -> Path:
    """Where the server of a port publishes the table of its own devices: beside the host's, which is a router's."""
    return default_path(environ).with_name(f"serve-{port}.table")


def server_tables(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The tables of servers that run; what one that was killed left is not among them."""
    folder = default_path(environ).parent
    return [path for path in sorted(folder.glob("serve-*.table")) if _published(path)]


def _published(path: Path) -> bool:
    """Whether somebody holds the lock of who publishes there."""
    try:
        fd = os.open(f"{path}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


@dataclass(frozen=True, slots=True)
class Entry:
    """An instance as readers of the published table see it."""

    name: bytes
    seed: int
    weight: int
    """As configured."""
    effective: int
    """What it has in this table: 0 while it is not healthy."""
    healthy: bool = True
    health: float = 1.0
    """0 to 1."""
    address: tuple[bytes, int] = (bytes(4), 0)
    """IPv4 and port; zeros when the name is no such address."""
    gone: bool = False
    """It left; the index is still its own."""

    @property
    def text(self) -> str:
        """The name as text; bytes that are no UTF-8, which no publisher of ours writes, escaped."""
        return self.name.decode(errors="backslashreplace")

    def pack(self) -> bytes:
        """The 280 bytes of `dpf_route_entry`."""
        ip, port = self.address
        flags = 0 if self.gone else _USED | (_HEALTHY if self.healthy else 0)
        return _ENTRY.pack(
            self.seed, ip, port.to_bytes(2), self.weight, self.effective,
            round(self.health * 10000), flags, len(self.name), self.name,
        )  # fmt: skip

    @classmethod
    def unpack(cls, data: bytes) -> Entry | None:
        """The entry in 280 bytes; None where no instance had that index yet."""
        seed, ip, port, weight, effective, health, flags, size, name = _ENTRY.unpack(data)
        if not size:
            return None
        address, healthy = (ip, int.from_bytes(port)), bool(flags & _HEALTHY)
        return cls(name[:size], seed, weight, effective, healthy, health / 10000, address, gone=not flags & _USED)

    def figures(self) -> dict[str, object]:
        """As plain data: one value of a health map."""
        health = round(self.health, 4)
        return {"health": health, "healthy": self.healthy, "weight": self.weight, "effective": self.effective}


def name_of(entry: bytes) -> str:
    """The name in an entry's bytes: what most callers need of it."""
    size = int.from_bytes(entry[_SIZE_AT:_NAME_AT], sys.byteorder)
    return entry[_NAME_AT : _NAME_AT + size].decode(errors="backslashreplace")


class Published(_core.RouteMap):
    """A published table, mapped read-only. `lookup(model, user, ts_ms)` is C: an index, or NoInstance.

    RouteError when another table took its place: open it again. An index is good for a second at least, whatever is
    published meanwhile: it is not given to another instance sooner.
    """

    @classmethod
    def open(cls, path: Path | None = None) -> Self:
        """The table at `path`, the host's by default; Unavailable when there is none, RouteError for another file."""
        place = default_path() if path is None else path
        try:
            fd = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            what, found = "no routing table is published there", error.strerror
            raise Unavailable(what, where=str(place), found=found, remedy=_REMEDY) from error
        try:
            return cls(fd)
        except RouteError as error:
            raise error.at(str(place)) from None
        except OSError as error:
            raise RouteError("the table cannot be mapped", where=str(place), found=error.strerror) from error
        finally:
            os.close(fd)

    def entry(self, hash: int) -> tuple[int, int, Entry]:
        """The owner of a key's hash: index, generation and entry, all of one generation; NoInstance without one."""
        index, generation, data = self.find(hash)
        entry = Entry.unpack(data) if data is not None else None
        if index is None or entry is None or entry.gone:
            self.nobody()
        return index, generation, entry

    def entries(self) -> dict[int, Entry]:
        """Every instance by index."""
        return {index: entry for index, entry in self._all() if not entry.gone}

    def departed(self) -> dict[int, Entry]:
        """Instances that left, by the index that is still their own."""
        return {index: entry for index, entry in self._all() if entry.gone}

    def _all(self) -> Iterator[tuple[int, Entry]]:
        _, _, data = self.snapshot()
        for index in range(self.capacity):
            entry = Entry.unpack(data[index * _ENTRY.size : (index + 1) * _ENTRY.size])
            if entry is not None:
                yield index, entry

    def health_map(self) -> dict[str, dict[str, object]]:
        """Name → health, whether it counts as healthy, weights."""
        return {entry.text: entry.figures() for entry in self.entries().values()}

    def digest(self) -> int:
        """XXH64 of the table slots, as `Table.digest` of the table that was published."""
        return _core.xxh64(self.snapshot()[1])

    def nobody(self) -> NoReturn:
        """What `lookup` does where no instance is healthy: NoInstance with the health map."""
        raise NoInstance("no instance can serve the request", health=self.health_map(), remedy="see the health map")


class Publisher:
    """The one writer of a published table; close it, or use `with`. The file stays for its readers."""

    def __init__(
        self, path: Path | None, *, bits: int = BITS, capacity: int = CAPACITY, key_seed: int = KEY_SEED,
        mode: int = 0o600,
    ) -> None:  # fmt: skip
        """A table in the file at `path`, or without a name (a memfd, whose `fd` others are given).

        A table of that form that is there already goes on: its generation counts up. One of another form is replaced,
        and its readers are told to open it again. `mode`: 0o644 for a table that other users read,
        who then know the key seed too. RouteError when another process publishes there.
        """
        nbytes = _core.route_map_bytes(bits, capacity)
        self.path = path
        self._lock = -1 if path is None else _lock(path)
        try:
            self.fd = _create(path, nbytes, (bits, capacity, key_seed), mode)
            self._map = _core.RouteMap(self.fd, True)
        except OSError as error:
            self.close()
            what = "the table's memory cannot be made"
            raise RouteError(what, where=str(path), found=error.strerror, allowed=f"{nbytes} bytes") from error
        except BaseException:
            self.close()
            raise

    fd = -1

    def publish(self, table: _core.RouteTable, entries: bytes | bytearray) -> int:
        """Make this table and these instances what everybody reads from now on; the new generation.

        `entries` are `Entry.pack`s, by index, zeros where there is none. UsageError when something does not fit: other
        bits or another key seed, more instances than there is room for.
        """
        return self._map.publish(table, entries)

    @property
    def generation(self) -> int:
        """How often was published; 0 is a table that nobody serves."""
        return self._map.generation

    def withdraw(self) -> None:
        """Close it, and take its file away: who reads the table is told to open it again, and finds none."""
        if self._lock >= 0 and self.path is not None:
            self._map.end()
            for place in (self.path, Path(f"{self.path}.lock")):
                place.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Let another process publish."""
        for fd in (self.fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self.fd = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_Form = tuple[int, int, int]
"""Bits, capacity, key seed."""


def _lock(path: Path) -> int:
    """The lock of who publishes at `path`: an flock, which ends with its process."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.parent.stat().st_uid not in (os.getuid(), 0):
            raise RouteError("the table's folder belongs to somebody else", where=str(path.parent))
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RouteError(f"nothing can be published there: {error.strerror}", where=str(path)) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode(errors="replace")
        os.close(fd)
        what = "another process publishes this table"
        raise RouteError(
            what, where=str(path), found=f"process {holder or 'unknown'}", remedy="end it first"
        ) from error
    with contextlib.suppress(OSError):  # the disk is full: the lock holds without the number, which is for people
        os.ftruncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    return fd


def _create(path: Path | None, nbytes: int, form: _Form, mode: int) -> int:
    if path is None:
        fd = os.memfd_create("dpfedge-route", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _fill(fd, nbytes, form)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return fd
    old = _there(path)
    if old is not None:
        fd, there = old
        if (there.bits, there.capacity, there.key_seed) == form and not there.ended:
            os.fchmod(fd, mode)
            return fd
        os.close(fd)
    fresh = path.with_name(f"{path.name}.new")
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _fill(fd, nbytes, form)
        os.fchmod(fd, mode)
        if old is not None:
            old[1].end()  # first: who reads the old one must not believe it for ever if we die here
        os.rename(fresh, path)
    except BaseException:
        os.close(fd)
        fresh.unlink(missing_ok=True)
        raise
    return fd


def _there(path: Path) -> tuple[int, _core.RouteMap] | None:
    """The table at `path`, open for writing; None when there is none, or of another version, whose readers keep it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return fd, _core.RouteMap(fd, True)
    except RouteError:
        os.close(fd)
        return None


def _fill(fd: int, nbytes: int, form: _Form) -> None:
    if nbytes:
        os.posix_fallocate(fd, 0, nbytes)  # a full disk or memory is an error now, not a crash at some write
    _core.route_map_format(fd, *form)
