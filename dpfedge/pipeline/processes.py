# SPDX-License-Identifier: Apache-2.0
"""Memory of a process from /proc: a pid in, resident and proportional bytes out; it starts and signals nothing."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cpu_seconds", "memory_of"]


def memory_of(pid: int) -> dict[str, int]:
    """`rss_bytes`, `pss_bytes` and `private_dirty_bytes` of a process; empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    fields = dict(line.split(":", 1) for line in text.splitlines()[1:])
    if not fields:  # a process that is ending has no memory any more
        return {}
    names = {"rss_bytes": "Rss", "pss_bytes": "Pss", "private_dirty_bytes": "Private_Dirty"}
    return {name: int(fields[field].split()[0]) * 1024 for name, field in names.items()}


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
