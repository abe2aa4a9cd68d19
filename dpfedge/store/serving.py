# SPDX-License-Identifier: Apache-2.0
"""Which running servers serve a package of a store: notes that servers write, and what is true of them now.

A note lies in the store where the server may write there, else in the user's runtime folder. It holds nothing secret,
and nobody trusts it: a note whose process is gone does not count, and the server's socket says who may connect.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dpfedge.records import dataclass
from dpfedge.store.places import Places, runtime_folder
from dpfedge.store.small import read_json

__all__ = ["Server", "announce", "servers", "stale_notes"]


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves `name` from the store at `root`."""

    pid: int
    started: int
    """The process' start in clock ticks since boot: a pid alone may be somebody else's by now."""
    root: str
    name: str
    socket: str | None

    def alive(self) -> bool:
        """Whether it still runs."""
        return _start_of(self.pid) == self.started


def announce(places: Places, name: str, socket: Path | None) -> Path | None:
    """Note that this process serves `name`; the note, which the caller deletes. None where no note can be written."""
    pid = os.getpid()
    address = os.fspath(socket.absolute()) if socket is not None else None
    server = Server(pid, _start_of(pid), os.path.realpath(places.root), name, address)
    for folder in _folders(places):
        note = folder / f"{pid}.json"
        new = note.with_name(f".{pid}.new")
        try:
            if folder != places.serving:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not _own(folder):
                    continue
            new.write_text(json.dumps(asdict(server)))
            new.replace(note)
        except OSError:
            continue  # a read-only store: the next folder
        return note
    return None


def servers(places: Places, name: str) -> list[Server]:
    """The running servers of `name` in this store that have left a note."""
    folders = [folder for folder in _folders(places) if folder == places.serving or _own(folder)]
    known = [server for folder in folders for _, server in _notes(folder) if server is not None]
    wanted = (os.path.realpath(places.root), name)
    return [server for server in known if (server.root, server.name) == wanted and server.alive()]


def stale_notes(folder: Path) -> list[Path]:
    """Notes of processes that are gone."""
    return [path for path, server in _notes(folder) if server is None or not server.alive()]


def _folders(places: Places) -> tuple[Path, Path]:
    return places.serving, runtime_folder() / "serving"


def _own(folder: Path) -> bool:
    """Whether the folder is this user's: anybody could have made one of that name in /tmp."""
    return folder.is_dir() and folder.stat().st_uid == os.geteuid()


def _notes(folder: Path) -> Iterator[tuple[Path, Server | None]]:
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        try:
            yield path, _server(read_json(path))
        except (OSError, ValueError, TypeError):
            yield path, None


def _server(fields: Mapping[str, Any]) -> Server:
    """A note's server; ValueError for one that no server wrote: without /proc a server has no start to be known by."""
    server = Server(**fields)
    numbers = isinstance(server.pid, int) and isinstance(server.started, int) and server.started > 0
    texts = isinstance(server.root, str) and isinstance(server.name, str) and isinstance(server.socket, str | None)
    if not numbers or not texts:
        raise ValueError("not a note of a server")
    return server


def _start_of(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 for a process that is not there, or ended and nobody asked how."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return 0 if fields[0] == b"Z" else int(fields[19])
    except (OSError, IndexError, ValueError):
        return 0
