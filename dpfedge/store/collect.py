# SPDX-License-Identifier: Apache-2.0
"""Deleting what a store needs no more: leftovers of killed installs and files that no slot refers to.

The caller holds the store's lock, so that nothing here belongs to an install in progress. Files of other kinds, which
somebody else put into the store's folders, stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dpfedge.records import dataclass
from dpfedge.store.durable import changing, fsync_folder
from dpfedge.store.lock import held
from dpfedge.store.mapped import in_use
from dpfedge.store.places import Places
from dpfedge.store.serving import stale_notes
from dpfedge.store.slots import is_id, read_slots

__all__ = ["Collected", "collect"]


@dataclass(frozen=True, slots=True)
class Collected:
    """`deleted`: file → bytes; `kept`: file → the running processes it is kept for."""

    deleted: dict[Path, int]
    kept: dict[Path, list[int]]


def collect(places: Places) -> Collected:
    """Delete and tell; StoreError when a name's slots cannot be read, for they may refer to anything."""
    needed = {id for name in places.known_names() for id in _ids(places, name)}
    candidates = [path for path in places.files.iterdir() if _unneeded(path, needed)] + list(_leftovers(places))
    kept = in_use(candidates)
    sealed = (path for path in places.files.glob("*.lock") if _id(path) and held(path))
    kept_ids = {_id(path) for path in (*kept, *sealed)}
    doomed = [path for path in candidates if path not in kept and not (_id(path) and _id(path) in kept_ids)]
    deleted: dict[Path, int] = {}
    for path in (*doomed, *stale_notes(places.serving)):
        with changing(path), contextlib.suppress(FileNotFoundError):  # a seal that became complete, a server that ended
            nbytes = path.lstat().st_size
            path.unlink()
            deleted[path] = nbytes
    for folder in sorted({path.parent for path in deleted}):
        with changing(folder):
            fsync_folder(folder)
    return Collected(deleted, kept)


def _ids(places: Places, name: str) -> set[str]:
    slots = read_slots(places.slots(name), name)
    return slots.ids() if slots else set()


def _unneeded(path: Path, needed: set[str]) -> bool:
    if path.is_dir():
        return False  # no store makes folders there
    if path.name.startswith("."):
        return True  # it never got its name
    id = _id(path)
    return id is not None and id not in needed


def _id(path: Path) -> str | None:
    """The package that a file of `files` belongs to: the package itself, its record, its seals, whole or not."""
    id = path.name.removeprefix(".").partition(".")[0]
    return id if is_id(id) else None


def _leftovers(places: Places) -> Iterator[Path]:
    """Copies that were never verified, slots and notes that never got their name."""
    yield from (path for path in places.incoming.iterdir() if not path.is_dir())
    yield from places.names.glob(".*.new")
    yield from places.serving.glob(".*.new")
