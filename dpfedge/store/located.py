# SPDX-License-Identifier: Apache-2.0
"""What a caller means by a package: a file, or the name of an installed one; and opening it with the checks it needs.

A file wins over a name. An installed file that is as it was when it was verified is opened with the fast check; after
a new boot a sample of its pages is read too; one whose inode changed is checked in full.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dpfedge.errors import DigestError, PackageError
from dpfedge.package import Package, open_package
from dpfedge.package.fields import is_name
from dpfedge.records import dataclass

if TYPE_CHECKING:
    from dpfedge.store.record import Installed

__all__ = ["Located", "locate"]


@dataclass(frozen=True, slots=True)
class Located:
    """A package file, and what the store knows of it."""

    path: Path
    installed: Installed | None = None
    root: Path | None = None
    """The store's."""

    def open(self, check: Literal["fast", "full"] = "fast") -> Package:
        """Open it; `check` is for a file from outside the store, or asks for more than the store finds necessary."""
        if self.installed is None:
            return open_package(self.path, check=check)
        from dpfedge.store.record import package_id
        from dpfedge.store.sample import check_sample

        state = self.installed.state()
        package = open_package(self.path, check="full" if state == "changed" else check)
        try:
            if package_id(package) != self.installed.id:
                remedy = "install the package again, or `dpfedge rollback`"
                raise DigestError(
                    "another file lies in the place of an installed one", where=str(self.path), remedy=remedy
                )
            if state == "new boot":
                check_sample(self.path, self.installed.verified.sample)
        except BaseException:
            package.close()
            raise
        return package


def locate(ref: str | os.PathLike[str], root: Path | None = None) -> Located:
    """The file `ref`, or the active package of that name in the store at `root` (None: in `search_roots()`).

    PackageError tells what was looked for and the names there are, StoreError what is wrong with the store.
    """
    path, text = Path(ref), os.fspath(ref)
    if os.path.isfile(path) or not is_name(text):  # False, not an error, for a place one may not look into
        return Located(path)
    from dpfedge.store.find import active  # a file needs no store
    from dpfedge.store.places import Places, search_roots

    known: dict[Path, list[str]] = {}
    for places in map(Places, search_roots() if root is None else (root,)):
        known[places.root] = list(places.known_names())
        if text in known[places.root]:
            installed = active(places, text)
            return Located(installed.path, installed, places.root)
    if path.exists():  # a folder, a device: opening it says what is wrong with it
        return Located(path)
    raise _nothing(text, known)


def _nothing(text: str, known: Mapping[Path, Sequence[str]]) -> PackageError:
    from dpfedge.config import nearest  # YAML and all; only a mistake pays for it

    names = [name for names in known.values() for name in names]
    remedy = nearest(text, names) or "see `dpfedge list`, or give the path of a .dpfbin file"
    there = ", ".join(f"{', '.join(names) or 'no name'} in {root}" for root, names in known.items())
    return PackageError(
        "there is no such file, and no package of this name is installed", where=text,
        allowed=f"{there}, or a file", remedy=remedy,
    )  # fmt: skip
