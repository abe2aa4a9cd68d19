# SPDX-License-Identifier: Apache-2.0
"""Entry points of one group: the folders of `sys.path` in, the installed distributions' points out.

`importlib.metadata` answers the same and more, but importing it takes longer than binding a package, and it reads every
distribution anew each time. Only metadata folders (`*.dist-info`, `*.egg-info`) are read; nothing is imported.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from dpfedge.records import dataclass

__all__ = ["Distribution", "Point", "installed"]

_SUFFIXES = (".dist-info", ".egg-info")
_FILES_MAX_BYTES = 1 << 20  # a README may stand in METADATA


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a plugin was installed as."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Point:
    """One entry point: `value` is a module, or `module:attribute`."""

    name: str
    value: str
    dist: Distribution

    def load(self) -> Any:
        """Import what it names; whatever that raises passes through."""
        module, _, attributes = self.value.partition(":")
        found: Any = import_module(module)
        for attribute in attributes.split(".") if attributes else ():
            found = getattr(found, attribute)
        return found


def installed(group: str) -> tuple[Point, ...]:
    """The points of a group by (name, value); of one distribution's copies, the first on `sys.path` counts."""
    return _scan(group, tuple(_stamps()))


def _stamps() -> Iterator[tuple[str, int]]:
    """Folders with their times: installing or removing a distribution changes its folder's time."""
    for entry in dict.fromkeys(sys.path):
        folder = entry or os.getcwd()
        try:
            yield folder, os.stat(folder).st_mtime_ns
        except OSError:
            continue  # sys.path often names a zip file that is not there


@lru_cache(maxsize=4)
def _scan(group: str, stamps: tuple[tuple[str, int], ...]) -> tuple[Point, ...]:
    found: list[Point] = []
    seen: set[str] = set()
    for folder, _ in stamps:
        for place in _metadata(folder):
            stem = os.path.basename(place).partition("-")[0].lower().replace("-", "_").replace(".", "_")
            if stem not in seen:
                seen.add(stem)
                points = list(_points(_text(f"{place}/entry_points.txt"), group))
                dist = _distribution(place) if points else None
                found += [Point(name, value, dist) for name, value in points if dist is not None]
    return tuple(sorted(found, key=lambda point: (point.name, point.value)))


def _metadata(folder: str) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if entry.name.endswith(_SUFFIXES))
    except OSError:  # a file, or a folder that may not be read: imports from it fail with their own words
        return
    yield from (f"{folder}/{name}" for name in names)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_FILES_MAX_BYTES)
    except OSError:  # most distributions have no entry points
        return ""


def _points(text: str, group: str) -> Iterator[tuple[str, str]]:
    if f"[{group}]" not in text:
        return
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == group and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.partition("[")[0].strip()


def _distribution(place: str) -> Distribution:
    head = (_text(f"{place}/METADATA") or _text(f"{place}/PKG-INFO")).partition("\n\n")[0]
    fields = dict(line.partition(": ")[::2] for line in reversed(head.splitlines()))
    stem, _, version = os.path.basename(place).rpartition(".")[0].partition("-")
    return Distribution(fields.get("Name", stem).strip(), fields.get("Version", version).strip())
