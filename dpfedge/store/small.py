# SPDX-License-Identifier: Apache-2.0
"""Small JSON files of a store (slots, records, notes): a path in, its values out, in bounded time and memory.

What the values mean is judged by who asks.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from dpfedge import limits

__all__ = ["read_json"]


def read_json(path: Path) -> Any:
    """The values in the file; OSError when it cannot be read, ValueError when no store ever wrote such a file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block the open
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        data = os.read(fd, limits.STORE_FILE_MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > limits.STORE_FILE_MAX_BYTES:
        raise ValueError(f"more than {limits.STORE_FILE_MAX_BYTES} bytes")
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
