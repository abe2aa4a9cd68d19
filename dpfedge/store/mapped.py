# SPDX-License-Identifier: Apache-2.0
"""Which files running processes have mapped or open, from /proc; only processes this user may look at are seen.

Deleting a file that another user's process has mapped does that process no harm: the kernel keeps it until then.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["in_use"]

PROC = Path("/proc")


def in_use(files: Iterable[Path], proc: Path = PROC) -> dict[Path, list[int]]:
    """File → processes that have it mapped or open; found by its path, or by its number where the path differs."""
    known: dict[str, Path] = {}
    for path in files:
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
            known[os.fspath(path)] = known[f"{device} {status.st_ino}"] = path
    found: dict[Path, set[int]] = {}
    for process in proc.glob("[0-9]*") if known else ():
        for key in _keys(process):
            if key in known:
                found.setdefault(known[key], set()).add(int(process.name))
    return {path: sorted(pids) for path, pids in found.items()}


def _keys(process: Path) -> Iterator[str]:
    """Paths and device numbers of a process' files; none of one that ended meanwhile or belongs to somebody else."""
    with contextlib.suppress(OSError):
        for line in (process / "maps").read_bytes().splitlines():
            _, _, _, device, inode, *path = line.split(None, 5)
            if path:
                yield f"{device.decode()} {inode.decode()}"
                yield os.fsdecode(path[0].replace(b"\\012", b"\n"))  # the only byte the kernel escapes there
    with contextlib.suppress(OSError):
        for fd in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield os.readlink(fd)
