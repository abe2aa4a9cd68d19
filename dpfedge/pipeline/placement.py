# SPDX-License-Identifier: Apache-2.0
"""Where each stage runs: a board's placement and this process' cores in, threads, cores and niceness per stage out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Place", "loading_cores", "place"]


@dataclass(frozen=True, slots=True)
class Place:
    """What one stage process may use of the machine; no cores means every core this process may use."""

    threads: int
    cores: tuple[int, ...]
    nice: int
    spin_ns: int


def place(name: str, placement: Mapping[str, Mapping[str, Any]]) -> Place:
    """The place of stage `name`: of the board's cores those this process may use; threads are never more than cores."""
    wanted = placement.get(name, {})
    allowed = os.sched_getaffinity(0)
    cores = tuple(core for core in wanted.get("cores", ()) if core in allowed)
    available = len(cores) or len(allowed)
    threads = max(1, min(int(wanted.get("threads", 1)), available))
    return Place(threads, cores, int(wanted.get("nice", 0)), int(wanted.get("spin_ns", 0)))


def loading_cores(name: str, heaviest: str, stages: int, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Cores for stage `name` while all `stages` load at once; none means those it will run on, which are `cores`.

    The pipeline is ready when its heaviest stage is. Where there are fewer cores than stages, that one has a core to
    itself: the others load on the rest.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if cores or not heaviest or name == heaviest or not 1 < len(allowed) < stages:
        return ()
    return tuple(allowed[1:])
