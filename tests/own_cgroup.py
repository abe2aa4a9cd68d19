# SPDX-License-Identifier: Apache-2.0
"""A cgroup of this process and its children: what is routed inside does not meet tests that run at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpfedge.routing.kernel.support import cgroup_root

__all__ = ["own_cgroup"]

_GONE_S = 10.0


@contextmanager
def own_cgroup(name: str) -> Iterator[Path]:
    """Move this process into a new cgroup, and out again; Unavailable or OSError, before, where that is not allowed.

    Children that outlive the block, as multiprocessing's resource tracker does, are moved with it.
    """
    root = cgroup_root()
    before = root / Path("/proc/self/cgroup").read_text().partition("0::/")[2].strip()
    own = root / f"dpfedge-{name}-{os.getpid()}"
    own.mkdir()
    try:
        (own / "cgroup.procs").write_text(str(os.getpid()))
        yield own
    finally:
        _remove(own, before)


def _remove(own: Path, before: Path) -> None:
    """Whatever is left in it moves to `before`; a process that is ending cannot be moved and is waited for."""
    give_up = time.monotonic() + _GONE_S
    while True:
        for pid in (own / "cgroup.procs").read_text().split():
            _move(pid, before)
        try:
            own.rmdir()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.02)


def _move(pid: str, place: Path) -> None:
    try:
        (place / "cgroup.procs").write_text(pid)
    except ProcessLookupError:
        return
