# SPDX-License-Identifier: Apache-2.0
"""Where each stage runs: a board's placement and this process' cores in, threads, cores and priority per stage out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from dpfedge.records import dataclass

__all__ = ["Place", "loading_cores", "place"]


@dataclass(frozen=True, slots=True)
class Place:
    """What one stage may use of the machine; no cores means every core this process may use."""

    threads: int
    cores: tuple[int, ...]
    nice: int
    spin_ns: int
    isolation: Literal["process", "thread"] = "process"
    """`thread`: it shares one process with every other stage that says so."""
    fifo: int = 0
    """Real-time priority of the stage's own thread; 0: none."""


def place(name: str, placement: Mapping[str, Mapping[str, Any]], kind: str | None = None) -> Place:
    """The place of stage `name`, or else of its kind: of the board's cores those this process may use.

    Threads are never more than cores.
    """
    wanted = placement.get(name) or placement.get(kind or name, {})
    allowed = os.sched_getaffinity(0)
    cores = tuple(core for core in wanted.get("cores", ()) if core in allowed)
    available = len(cores) or len(allowed)
    return Place(
        threads=max(1, min(int(wanted.get("threads", 1)), available)),
        cores=cores,
        nice=int(wanted.get("nice", 0)),
        spin_ns=int(wanted.get("spin_ns", 0)),
        isolation=wanted.get("isolation", "process"),
        fifo=int(wanted.get("fifo", 0)),
    )


def loading_cores(name: str, heaviest: str, stages: int, cores: tuple[int, ...]) -> tuple[int, ...]:
    """Cores for stage `name` while all `stages` load at once; none means those it will run on, which are `cores`.

    The pipeline is ready when its heaviest stage is. Where there are fewer cores than stages, that one has a core to
    itself: the others load on the rest.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if cores or not heaviest or name == heaviest or not 1 < len(allowed) < stages:
        return ()
    return tuple(allowed[1:])
