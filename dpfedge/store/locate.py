# SPDX-License-Identifier: Apache-2.0
"""What a caller means by a package: a file, or the name of an installed one; and opening it with the checks it needs.

A file wins over a name. An installed file that is as it was when it was verified is opened with the fast check; after
a new boot a sample of its pages is read too; one whose inode changed is checked in full.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dpfedge.errors import DigestError, PackageError
from dpfedge.package import Package, open_package
from dpfedge.package.fields import is_name
from dpfedge.store.record import Installed
from dpfedge.store.sample import check_sample
from dpfedge.store.store import Store, package_id

__all__ = ["Located", "locate"]


@dataclass(frozen=True, slots=True)
class Located:
    """A package file, and what the store knows of it."""

    path: Path
    installed: Installed | None = None
    store: Store | None = None

    def open(self, check: Literal["fast", "full"] = "fast") -> Package:
        """Open it; `check` is for a file from outside the store, or asks for more than the store finds necessary."""
        if self.installed is None:
            return open_package(self.path, check=check)
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


def locate(ref: str | os.PathLike[str], store: Store | None = None) -> Located:
    """The file `ref`, or the active package of that name in `store` (None: the default one).

    PackageError tells what was looked for and the names there are, StoreError what is wrong with the store.
    """
    path, text = Path(ref), os.fspath(ref)
    if path.is_file() or not is_name(text):
        return Located(path)
    store = Store() if store is None else store
    known = list(store.places.known_names())
    if text in known:
        installed = store.active(text)
        return Located(installed.path, installed, store)
    if path.exists():  # a folder, a device: opening it says what is wrong with it
        return Located(path)
    raise _nothing(text, store, known)


def _nothing(text: str, store: Store, known: list[str]) -> PackageError:
    from dpfedge.config import nearest  # YAML and all; only a mistake pays for it

    remedy = nearest(text, known) or "see `dpfedge list`, or give the path of a .dpfbin file"
    return PackageError(
        "there is no such file, and no package of this name is installed", where=text,
        allowed=f"{', '.join(known) or 'no name'} in {store.root}, or a file", remedy=remedy,
    )  # fmt: skip
