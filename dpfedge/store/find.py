# SPDX-License-Identifier: Apache-2.0
"""Finding installed packages by name or id; it takes no lock and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from dpfedge.errors import StoreError, UsageError
from dpfedge.store.places import Places
from dpfedge.store.record import Installed, read_record
from dpfedge.store.slots import is_id, read_slots

__all__ = ["active", "by_id", "stored", "unknown"]


def active(places: Places, name: str) -> Installed:
    """The package in the active slot; UsageError with the names there are, StoreError when it cannot be told."""
    slots = read_slots(places.slots(name), name)
    if slots is None:
        raise unknown(places, name)
    try:
        return by_id(places, slots.active)
    except StoreError:
        now = read_slots(places.slots(name), name)
        if now is None or now.active == slots.active:
            raise
        return by_id(places, now.active)  # it was switched and collected between the two reads


def by_id(places: Places, id: str) -> Installed:
    """The package with this id; StoreError when there is none."""
    return read_record(places.record(id), places.package(id))


def stored(package: Path) -> tuple[Places, str] | None:
    """The store in which a package file lies, and its id there; None for a file outside every store."""
    for folder in (os.path.abspath(package.parent), os.path.realpath(package.parent)):  # either may lead over a link
        path = Path(folder, package.name)
        places, id = Places(path.parent.parent), path.stem
        if is_id(id) and path == places.package(id) and places.lock.exists():
            return places, id
    return None


def unknown(places: Places, name: str) -> UsageError:
    """What to say of a name that nobody installed."""
    from dpfedge.config import nearest  # YAML and all; only a mistake pays for it

    known = list(places.known_names())
    return UsageError(
        "no such package is installed", where=os.fspath(places.root), found=repr(name),
        allowed=", ".join(known) or "none is", remedy=nearest(name, known),
    )  # fmt: skip
