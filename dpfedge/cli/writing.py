# SPDX-License-Identifier: Apache-2.0
"""Files that a command writes for its user: what the system refuses there is a WriteError that names the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dpfedge.errors import WriteError

__all__ = ["writing"]


@contextlib.contextmanager
def writing(path: Path, what: str) -> Iterator[None]:
    """Around the calls that write `what` ("the figures") into `path`; WriteError instead of their OSError."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"{what} cannot be written", where=str(path), found=error.strerror) from error
