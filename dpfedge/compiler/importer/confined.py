# SPDX-License-Identifier: Apache-2.0
"""A file name that a model file gives in, the path of a plain file inside the model's folder out; it opens nothing."""

from __future__ import annotations

import os
from pathlib import Path

from dpfedge.errors import ModelError

__all__ = ["confined"]


def confined(folder: Path, location: str, where: str, what: str) -> Path:
    """The path of `location` below `folder`; ModelError when it leads out or is no plain file of its own.

    `what` is the title of the file in the error. Links are refused even inside the folder: a later change of where
    they lead would change the model.
    """
    root = folder.resolve()
    plain = root / location
    if (
        not location
        or "\0" in location
        or os.path.isabs(location)
        or plain.resolve().parent != plain.parent
        or not plain.resolve().is_relative_to(root)
    ):
        raise ModelError(
            f"{what} lies outside the model's folder", where=where, found=location, allowed=f"a file below {root}"
        )
    if not os.path.lexists(plain):
        raise ModelError(
            f"{what} is missing", where=where, found=location, allowed=f"a file below {root}", remedy="fetch it as well"
        )
    if not plain.is_file() or plain.is_symlink() or plain.stat().st_nlink > 1:
        raise ModelError(
            f"{what} is no plain file of its own", where=where, found=location, remedy="copy it beside the model"
        )
    return plain
