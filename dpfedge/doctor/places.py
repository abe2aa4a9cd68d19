# SPDX-License-Identifier: Apache-2.0
"""Every folder dpfedge uses: an environment in; each with what it is for, and whether it can be used, out.

It creates nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dpfedge.doctor.surroundings import Finding
from dpfedge.errors import DpfError
from dpfedge.hardware.board import board_files
from dpfedge.models.cache import root as model_cache
from dpfedge.records import dataclass
from dpfedge.signing.trust import trust_folders, user_folder
from dpfedge.store.places import runtime_folder, search_roots, temporary_folder

__all__ = ["Place", "check_places", "places"]

_SHARED = Path("/dev/shm")
_SHARED_LEAST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """One folder."""

    name: str
    path: Path
    variable: str = ""
    """The environment variable that moves it."""
    written: bool = True
    """dpfedge writes into it."""

    @property
    def state(self) -> str:
        """`ok`, `not there yet`, or what is wrong."""
        if self.path.exists():
            if not os.access(self.path, os.R_OK | os.X_OK):
                return "may not be read"
            return "ok" if not self.written or os.access(self.path, os.W_OK) else "may not be written"
        above = next((one for one in self.path.parents if one.exists()), Path("/"))
        return "not there yet" if not self.written or os.access(above, os.W_OK) else f"cannot be made below {above}"


def places(environ: Mapping[str, str] = os.environ) -> Sequence[Place]:
    """Where everything is, in the order in which a package meets it."""
    found = [Place("models", model_cache(), "DPFEDGE_HOME")]
    found += [Place("store", path, "DPFEDGE_STORE", index == 0) for index, path in enumerate(search_roots(environ))]
    trusted = trust_folders(environ) or tuple(path for path in (user_folder(environ),) if path is not None)
    found += [Place("trust", path, "DPFEDGE_TRUST", written=False) for path in trusted]
    boards = dict.fromkeys(path.parent for path in board_files().values())
    found += [Place("boards", path, "DPFEDGE_BOARDS", written=False) for path in boards]
    found += [
        Place("run", runtime_folder(environ), "XDG_RUNTIME_DIR"),
        Place("temporary", temporary_folder(environ), "TMPDIR"),
    ]
    return found


def check_places(environ: Mapping[str, str] = os.environ, shared: Path = _SHARED) -> Iterator[Finding]:
    """Folders that cannot be used as they must be, and shared memory too small for links where memfds are refused."""
    try:
        known = places(environ)
    except DpfError as error:
        yield Finding("places", "fault", error.where or "places", error.what, error.remedy or "")
        return
    for place in known:
        if place.state not in ("ok", "not there yet"):
            remedy = f"change its permissions, or set {place.variable}"
            yield Finding("places", "fault", f"{place.name} {place.path}", place.state, remedy)
    try:
        free = os.statvfs(shared).f_bavail * os.statvfs(shared).f_frsize
    except OSError:
        return
    if free < _SHARED_LEAST_BYTES:
        what = f"only {free >> 20} MiB are free; programs beside dpfedge may end by SIGBUS there"
        yield Finding("places", "warning", os.fspath(shared), what, "start the container with --shm-size=256m")
