# SPDX-License-Identifier: Apache-2.0
"""What `--sysroot` names: a folder or the tar file of a recording in; a folder to read below, while it is used, out.

It reads nothing of the machine itself; a folder is taken as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpfedge.errors import UsageError

__all__ = ["machine_root"]


@contextmanager
def machine_root(sysroot: str | Path = "/") -> Iterator[Path]:
    """The folder that stands for `/` of the machine; UsageError when there is nothing that could."""
    place = Path(sysroot)
    if place.is_dir():
        if not os.access(place, os.R_OK | os.X_OK):
            raise UsageError("the folder may not be read", where=f"--sysroot {place}", remedy="change its permissions")
        yield place
        return
    if not place.is_file():
        what = "neither a folder nor a file" if place.exists() else "there is no such folder or recording"
        remedy = "`dpfedge probe --record DIR --tar FILE` makes a recording"
        raise UsageError(what, where=f"--sysroot {place}", remedy=remedy)
    import tempfile  # only for recordings in a file: its own imports take longer than binding

    from dpfedge.hardware.unpack import unpack

    try:
        unpacked = tempfile.TemporaryDirectory(prefix="dpfedge-sysroot-")
    except OSError as error:  # a machine whose disks are read-only
        remedy = "name a folder you can write in TMPDIR, or unpack it elsewhere and name that folder"
        what = f"the recording cannot be unpacked: {error.strerror}"
        raise UsageError(what, where=f"--sysroot {place}", remedy=remedy) from error
    with unpacked as folder:
        unpack(place, Path(folder))
        yield Path(folder)
