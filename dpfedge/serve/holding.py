# SPDX-License-Identifier: Apache-2.0
"""A process in; the packages (and seals) it maps, and how much of them it holds in memory, out. /proc is only read."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfedge.errors import PackageError, Unavailable
from dpfedge.package import Package, open_package
from dpfedge.package.layout import MAGIC
from dpfedge.package.residency import residency

__all__ = ["holdings"]

_GONE = " (deleted)"


def holdings(pid: int) -> dict[str, dict[str, Any]]:
    """Path of each package → its name, and section kind → bytes `mapped`, `rss`, `pss` and `private` of process `pid`.

    `replaced` is true, and nothing is counted, where the file was replaced on disk. Unavailable: not this user's.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in _mapped(pid):
        package = None if path.endswith(_GONE) else _package(path, os.stat(path).st_ino)
        if package is not None:
            kinds = {kind: asdict(resident) for kind, resident in residency(pid, package).items()}
            title = f"{package.manifest.name} {package.manifest.version}"
            found[path] = {"name": title, "replaced": not kinds, "sections": kinds}
        elif path.endswith(f".dpfbin{_GONE}"):
            found[path.removesuffix(_GONE)] = {"name": None, "replaced": True, "sections": {}}
    return found


def _mapped(pid: int) -> Iterator[str]:
    """Files that might be packages, once each."""
    try:
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError as error:
        what = "memory of the process cannot be read"
        raise Unavailable(what, where=f"process {pid}", found=error.strerror) from error
    names = (line.split(maxsplit=5)[5:] for line in text.splitlines())
    paths = dict.fromkeys(name[0] for name in names if name and name[0].startswith("/") and ".so" not in name[0])
    for path in paths:
        # files end and change while they are looked at; only one that begins like a package is opened
        with contextlib.suppress(OSError):
            if path.endswith(_GONE) or _begins_like_one(path):
                yield path


def _begins_like_one(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@lru_cache(maxsize=16)
def _package(path: str, inode: int) -> Package | None:
    with contextlib.suppress(PackageError):
        return open_package(path, check="fast")
    return None
