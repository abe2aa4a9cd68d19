# SPDX-License-Identifier: Apache-2.0
"""The tar file of a recorded machine in, its files below a folder out.

A tar file is foreign data: nothing of it is written outside the folder, and never more than the file holds.
"""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from dpfedge import limits
from dpfedge.errors import UsageError

__all__ = ["unpack"]


def unpack(source: Path, folder: Path) -> None:
    """Lay regular files and symbolic links into the empty `folder`; UsageError says what is wrong with the file."""
    try:
        if (size := source.stat().st_size) > limits.RECORDING_MAX_BYTES:
            allowed = f"{limits.RECORDING_MAX_BYTES} bytes"
            raise UsageError("the recording is too large", where=str(source), found=f"{size} bytes", allowed=allowed)
        # uncompressed only: what is unpacked is then never more than what is there
        with source.open("rb") as data, tarfile.open(fileobj=data, mode="r:") as tar:
            links = [entry for entry in tar if _lay(tar, entry, folder)]
        for entry in links:  # last, so that no file is ever written through one
            _link(entry, folder)
    except (tarfile.TarError, OSError, ValueError) as error:
        remedy = "an uncompressed tar file is needed; `dpfedge probe --record DIR --tar FILE` makes one"
        raise UsageError(f"this is no recording: {error}", where=str(source), remedy=remedy) from error


def _lay(tar: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> bool:
    """Write one regular file; True for a symbolic link. Folders come with their files, devices and the rest do not."""
    if entry.isreg() and not entry.issparse():
        place = folder / _inside(entry)
        place.parent.mkdir(parents=True, exist_ok=True)
        content = tar.extractfile(entry)
        assert content is not None
        place.write_bytes(content.read(limits.PROBE_FILE_MAX_BYTES))
    return entry.issym()


def _link(entry: tarfile.TarInfo, folder: Path) -> None:
    place = folder / _inside(entry)
    if os.path.realpath(place.parent) != os.path.join(os.path.realpath(folder), *_inside(entry).split("/")[:-1]):
        raise ValueError(f"the entry {entry.name[:80]!r} lies behind a link")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(entry.linkname)


def _inside(entry: tarfile.TarInfo) -> str:
    """The entry's path below the root; ValueError for one that leads out of it."""
    parts = [part for part in entry.name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in entry.name + entry.linkname:
        raise ValueError(f"the entry {entry.name[:80]!r} leads out of it")
    return "/".join(parts)
