# SPDX-License-Identifier: Apache-2.0
"""The end that asks nobody: every process below this one and this one itself, killed; no orderly end happens here."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

__all__ = ["descendants", "die_at_once"]


def die_at_once(code: int) -> None:
    """Kill every process this one started, and this one; for a server that was told to end twice, or does not."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(code)


def descendants(pid: int, proc: Path = Path("/proc")) -> Sequence[int]:
    """The processes below `pid`, parents first."""
    children: dict[int, list[int]] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(children.get(pid, []))
    for one in found:
        found += children.get(one, [])
    return found
