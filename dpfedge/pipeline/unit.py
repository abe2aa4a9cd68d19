# SPDX-License-Identifier: Apache-2.0
"""What the supervisor knows of stages and of the processes they live in: records, and when a dead one is tried again.

A unit is one process with one stage or several, each in a thread of its own; its death is the death of all of them.
Nothing is started, signalled or waited for here.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from dpfedge.limits import STAGE_RESTARTS_MAX, STAGE_RESTARTS_WINDOW_S
from dpfedge.pipeline.graph import StageNode
from dpfedge.records import dataclass

__all__ = ["Deaths", "StageState", "Unit", "Variant", "units_of"]

BACK_OFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Seconds until the next try, after one death, two, and so on."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What a stage is started with instead of what the pipeline says."""

    model: str | None = None
    """A model of the package; None: the pipeline's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings that win over the pipeline's."""


@dataclass(slots=True)
class StageState:
    """What is known of one stage; written by the supervisor's thread only."""

    node: StageNode
    state: str = "starting"
    """`starting`, `ready`, `restarting`, or `failed`: down for good, or until the circuit breaker closes."""
    pid: int = 0
    """Of the process it lives in, maybe with others; 0 while there is none."""
    owner: int = 0
    """Its incarnation on the links."""
    restarts: int = 0
    served: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    load_ms: float = 0.0
    warm_ms: float = 0.0
    error: Mapping[str, Any] | None = None
    refused: Sequence[str] = ()
    """What the board asks for and the machine did not give, a line each."""
    unit: str = ""
    """The stage its process is named after; more than one stage has it when they share a process."""
    wanted: Variant = field(default_factory=Variant)
    """What it is to run with."""
    started: Variant = field(default_factory=Variant)
    """What its process was started with."""
    proven: Variant = field(default_factory=Variant)
    """What it was ready with last."""


class Deaths:
    """The deaths of one process within the last STAGE_RESTARTS_WINDOW_S seconds."""

    def __init__(self) -> None:
        self._at: deque[float] = deque(maxlen=STAGE_RESTARTS_MAX)

    def add(self) -> None:
        """One more, now."""
        self._at.append(time.monotonic())

    def pause_s(self) -> tuple[float, bool]:
        """Seconds until the next try; whether the circuit breaker is open: too many, until the first is long ago."""
        now = time.monotonic()
        while self._at and self._at[0] <= now - STAGE_RESTARTS_WINDOW_S:
            self._at.popleft()
        if len(self._at) >= STAGE_RESTARTS_MAX:
            return max(BACK_OFF_S[-1] + 1.0, self._at[0] + STAGE_RESTARTS_WINDOW_S - now), True
        return BACK_OFF_S[min(max(1, len(self._at)), len(BACK_OFF_S)) - 1], False


@dataclass(slots=True)
class Unit:
    """One process: its stages and, while it lives, how it is reached."""

    name: str
    stages: Mapping[str, StageState]
    pid: int = 0
    pidfd: int = -1
    channel: socket.socket | None = None
    serial: int = 0
    """Which process of the unit this is; it rises with every start."""
    early: list[Mapping[str, Any]] = field(default_factory=list)
    """What its stages said before anybody knew its pid."""
    deaths: Deaths = field(default_factory=Deaths)
    died_at: float = 0.0
    """time.monotonic() of the death it is not back from; 0 when it is, or did not die."""
    ending: bool = False
    """It was told to end, to be started with something else."""
    asking: bool = False
    """It is asked from time to time whether it is still used."""

    @property
    def served(self) -> bool:
        """Whether every stage of it was ready once."""
        return all(state.served for state in self.stages.values())

    @property
    def ready(self) -> bool:
        """Whether every stage of it is ready now."""
        return all(state.state == "ready" for state in self.stages.values())

    def set(self, state: str) -> None:
        """Give every stage this state."""
        for one in self.stages.values():
            one.state = state

    def begin(self) -> None:
        """A process of it is asked for, with what its stages are to run with by now."""
        self.serial += 1
        self.ending = False
        self.set("starting")
        for state in self.stages.values():
            state.error, state.started = None, state.wanted

    def outdated(self) -> bool:
        """Whether a stage is to run with another model than its process was started with."""
        return any(state.wanted.model != state.started.model for state in self.stages.values())

    def go_back(self) -> list[str]:
        """After a start that failed: the stages whose change was never ready; what was ready before is wanted again."""
        tried = [name for name, state in self.stages.items() if state.started != state.proven]
        for state in (self.stages[name] for name in tried):
            if state.wanted == state.started:
                state.wanted = state.proven
        return tried


def units_of(stages: Mapping[str, StageState], shared: Iterable[str]) -> dict[str, Unit]:
    """The processes for these stages: one for all those of `shared`, named after its first, and one for each other."""
    together = set(shared)
    one = {name: state for name, state in stages.items() if name in together}
    groups = [{name: state} for name, state in stages.items() if name not in together] + ([one] if one else [])
    units = {next(iter(group)): group for group in groups}
    for unit, group in units.items():
        for state in group.values():
            state.unit = unit
    return {name: Unit(name, group) for name, group in units.items()}
