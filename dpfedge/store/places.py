# SPDX-License-Identifier: Apache-2.0
"""Where a store is and what lies where in it: environment and names in, paths out; STORE.md is normative.

It creates and reads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from dpfedge.errors import StoreError, UsageError
from dpfedge.package.fields import is_name
from dpfedge.records import dataclass

__all__ = ["SYSTEM_ROOT", "Places", "default_root", "runtime_folder", "search_roots", "temporary_folder"]

SYSTEM_ROOT = Path("/var/lib/dpfedge")
_SLASH = "~"  # not in the alphabet of names
_SLOTS = ".json"


def default_root(environ: Mapping[str, str] = os.environ, system: Path = SYSTEM_ROOT) -> Path:
    """`DPFEDGE_STORE`, else `system` if it is there and writable, else `$XDG_DATA_HOME/dpfedge/store`."""
    if environ.get("DPFEDGE_STORE"):
        return Path(environ["DPFEDGE_STORE"]).absolute()
    if os.access(system, os.W_OK):
        return system
    data = environ.get("XDG_DATA_HOME", "")
    if data.startswith("/"):  # the XDG specification tells to ignore relative paths
        return Path(data) / "dpfedge" / "store"
    try:
        return Path.home() / ".local" / "share" / "dpfedge" / "store"
    except RuntimeError as error:
        remedy = "set DPFEDGE_STORE to a folder"
        raise StoreError("no home folder for the package store", found=str(error), remedy=remedy) from error


def search_roots(environ: Mapping[str, str] = os.environ, system: Path = SYSTEM_ROOT) -> tuple[Path, ...]:
    """The stores in which a name is looked up: the default one, and the system's where the user may only read it."""
    first = default_root(environ, system)
    return (first,) if environ.get("DPFEDGE_STORE") or first == system or not system.is_dir() else (first, system)


def runtime_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's folder for what lasts as long as a process: `$XDG_RUNTIME_DIR/dpfedge`, else a private one in /tmp."""
    if environ.get("XDG_RUNTIME_DIR"):
        return Path(environ["XDG_RUNTIME_DIR"], "dpfedge")
    return temporary_folder(environ) / f"dpfedge-{os.getuid()}"


def temporary_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """`$TMPDIR`, else /tmp; the same for every process of a user, whatever its folder is and whether it can write."""
    return Path(environ.get("TMPDIR") or "/tmp").absolute()


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of one store."""

    root: Path

    @property
    def lock(self) -> Path:
        """The file whose flock lets one process change the store."""
        return self.root / "lock"

    @property
    def files(self) -> Path:
        """The folder of packages, their records and seals."""
        return self.root / "files"

    @property
    def incoming(self) -> Path:
        """The folder of copies that are not verified yet."""
        return self.root / "incoming"

    @property
    def names(self) -> Path:
        """The folder with one file of two slots for each name."""
        return self.root / "names"

    @property
    def serving(self) -> Path:
        """The folder where running servers say what they serve."""
        return self.root / "serving"

    def folders(self) -> tuple[Path, ...]:
        """Every folder of a store, itself first."""
        return (self.root, self.files, self.incoming, self.names, self.serving)

    def package(self, id: str) -> Path:
        """The package with this id."""
        return self.files / f"{id}.dpfbin"

    def record(self, id: str) -> Path:
        """What was found out about it when it was installed."""
        return self.files / f"{id}.json"

    def sealing(self, id: str) -> Path:
        """The file whose flock lets one process build its seal."""
        return self.files / f"{id}.lock"

    def copy(self, id: str) -> Path:
        """It, while it is copied and verified."""
        return self.incoming / f"{id}.dpfbin"

    def slots(self, name: str) -> Path:
        """The slots of a package name; UsageError when it cannot be one."""
        if not is_name(name):
            raise UsageError("cannot be the name of a package", found=repr(name), remedy="see `dpfedge list`")
        return self.names / f"{name.replace('/', _SLASH)}{_SLOTS}"

    def known_names(self) -> Iterator[str]:
        """Every name that has slots, in order; none when there is no store, StoreError when it cannot be looked at."""
        try:
            files = os.listdir(self.names)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error.strerror}", where=os.fspath(self.names)) from error
        names = (one.removesuffix(_SLOTS).replace(_SLASH, "/") for one in files if one.endswith(_SLOTS))
        yield from sorted(name for name in names if is_name(name))
