# SPDX-License-Identifier: Apache-2.0
"""The `dpfedge serve` processes of this user: /proc in, where each listens and what it says of itself out.

It starts and signals nothing. A program that embeds the runtime listens nowhere and is not found.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from dpfedge.errors import Unavailable
from dpfedge.records import dataclass

__all__ = ["Server", "ask", "running", "server_at"]

_TIMEOUT_S = 5.0
_ANSWER_MAX_BYTES = 4 << 20  # /v1/status of sixteen stages takes under 64 KiB
_MAPS = ("arena", "seal", "server", "zygote", "degrade", "routing", "memory")
_MAPS_OF_MAPS = ("stages", "links", "native")
_STAGES = "dpf-"  # begins the names of processes that are no server, also when the server has died
_LISTENING_UNIX, _STREAM, _LISTENING_TCP = 1 << 16, 1, "0A"


@dataclass(frozen=True, slots=True)
class Server:
    """One process and its listening sockets: paths of Unix sockets, and (address, port) of TCP ones."""

    pid: int
    paths: tuple[str, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"process {self.pid}" if self.pid else ", ".join(self.paths)


def running(proc: Path = Path("/proc")) -> list[Server]:
    """Every server of this user, by process id."""
    unix, tcp = dict(_unix(proc)), dict(_tcp(proc))
    found: dict[int, Path] = {}
    for place in sorted(proc.glob("[0-9]*"), key=lambda place: int(place.name)):
        # processes end while they are looked at, and those of others are closed to us
        with contextlib.suppress(OSError):
            if place.stat().st_uid == os.getuid() and _serves((place / "cmdline").read_bytes()):
                found[int(place.name)] = place
    servers = []
    for place in found.values():
        with contextlib.suppress(OSError):
            if not _forked(place, found):
                servers.append(_server(place, unix, tcp))
    return servers


def server_at(path: Path) -> Server:
    """The server that listens on a Unix socket; Unavailable when nobody does."""
    with _connected(str(path)) as link:
        pid = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
    return Server(pid, (str(path),))


def _serves(command: bytes) -> bool:
    """Whether a command line is `python dpfedge serve …`, as a script or as a module; wrappers around it are not."""
    program, *words = (word.rpartition(b"/")[2] for word in command.split(b"\0")[:6])
    return program.startswith(b"python") and (b"dpfedge", b"serve") in pairwise(words)


def _forked(place: Path, found: Mapping[int, Path]) -> bool:
    """Whether it has its command line from a server that forked it: a parent of stages, or a stage."""
    name, _, rest = (place / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
    return name.startswith(_STAGES) or int(rest.split()[1]) in found


def _server(place: Path, unix: Mapping[str, str], tcp: Mapping[str, tuple[str, int]]) -> Server:
    inodes = [os.readlink(fd).removeprefix("socket:[").rstrip("]") for fd in sorted((place / "fd").iterdir())]
    folder = os.readlink(place / "cwd")
    paths = tuple(os.path.join(folder, unix[inode]) for inode in dict.fromkeys(inodes) if inode in unix)
    return Server(int(place.name), paths, tuple(tcp[inode] for inode in dict.fromkeys(inodes) if inode in tcp))


def _rows(table: Path) -> Iterator[list[str]]:
    with contextlib.suppress(OSError):  # a kernel without IPv6 has no table for it
        yield from (line.split(maxsplit=9) for line in table.read_text(errors="replace").splitlines()[1:])


def _unix(proc: Path) -> Iterator[tuple[str, str]]:
    """Inode → path of listening Unix sockets that speak HTTP; the native face's are of another kind."""
    for row in _rows(proc / "net/unix"):
        if len(row) > 7 and int(row[3], 16) & _LISTENING_UNIX and int(row[4], 16) == _STREAM:
            yield row[6], " ".join(row[7:])


def _tcp(proc: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Inode → address and port of listening TCP sockets; a server listens on loopback only."""
    for name, address in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        for row in _rows(proc / "net" / name):
            rest = row[-1].split()
            if row[3] == _LISTENING_TCP and rest:
                yield rest[0], (address, int(row[1].rpartition(":")[2], 16))


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = _connected(self._path)


def _connected(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.settimeout(_TIMEOUT_S)
    try:
        link.connect(path)
    except OSError as error:
        link.close()
        raise Unavailable(
            "no server listens there", where=path, found=error.strerror or type(error).__name__,
            remedy="`dpfedge status` lists the servers of this user",
        ) from error  # fmt: skip
    return link


def ask(server: Server, *, memory: bool = True) -> dict[str, Any]:
    """What the server answers to GET /v1/status; Unavailable when it does not answer, or not like a server.

    Without `memory` it costs the server next to nothing.
    """
    connections = [_UnixConnection(path) for path in server.paths]
    connections += [http.client.HTTPConnection(*place, timeout=_TIMEOUT_S) for place in server.ports]  # type: ignore[misc]
    if not connections:
        raise Unavailable("the server does not listen yet", where=str(server), remedy="try again in a moment")
    with contextlib.closing(connections[0]) as connection:
        try:
            connection.request("GET", "/v1/status" if memory else "/v1/status?memory=no")
            answer = connection.getresponse()
            told = json.loads(answer.read(_ANSWER_MAX_BYTES))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            raise Unavailable("the server does not answer", where=str(server), found=repr(error)) from error
    if answer.status != 200 or not isinstance(told, dict):
        raise Unavailable("the server gives no status", where=str(server), found=f"HTTP {answer.status}")
    if odd := [key for key in (*_MAPS, *_MAPS_OF_MAPS) if not _as_expected(key, told.get(key))]:
        raise Unavailable("the server's status makes no sense", where=str(server), found=", ".join(odd))
    return told


def _as_expected(key: str, value: object) -> bool:
    if value is None:
        return True
    if key in _MAPS:
        return isinstance(value, dict)
    return isinstance(value, dict) and all(isinstance(row, dict) for row in value.values())
