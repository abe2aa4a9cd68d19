# SPDX-License-Identifier: Apache-2.0
"""Launches of a plan become one, where the device runs a work-group on one thread: as many as a millisecond holds.

How large each is says `Launch.work`, or the elements of what it computes and reads of what was computed. A plan stays
what it was in all else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.joined import STATE, Joined, digest, signature, words
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.plan import CpuCall, Home, Kernel, Launch, Plan, Scalar, Slot, Tensor, Then

__all__ = ["Joiner"]

_MOST = 1 << 26
"""Multiplications (or elements) of all launches in one: about a millisecond, after which a run can be cancelled."""
_TICKET = 1 << 13
"""The same of what a group takes at once at least: less is done before another group has seen that it is free."""
_TICKETS = 16
"""Tickets of a launch for each group at most."""
_MEMORIES = (8, 16, 32, 60)
"""How many pieces of memory a program's launches may name; a device takes 1024 bytes of arguments at least."""
_COVERED = 0.75
"""The share of a plan's small kernels that a program of another plan must have to be used for it."""
_TABLE = "joined#table"
_ALIGN = 64
_Source = tuple[Home, str, int]
_Run = list[Launch]
_Step = Launch | CpuCall


class Joiner:
    """Joins the plans of one graph on one device; programs that it knows are used before new ones are made."""

    def __init__(self, facts: Facts, known: Sequence[str] = ()) -> None:
        self._units = facts.compute_units if facts.cpu else 0
        self._programs = [Joined(text) for text in known]

    @property
    def texts(self) -> Sequence[str]:
        """The programs' texts, for a later `Joiner` of the graph."""
        return [one.kernel.source for one in self._programs]

    def plan(self, plan: Plan, stretch: int = 0) -> Plan:
        """The plan with its small launches joined; it is the stretch of a run with this number."""
        if not self._units:
            return plan
        runs = list(_runs(plan))
        several = [one for one in runs if isinstance(one, list) and len(one) > 1]
        kernels = {_digest(launch): (launch.kernel, signature(launch)) for run in several for launch in run}
        then = None if plan.then is None else _Then(self, plan.then, stretch + 1, plan.then.values)
        if not kernels:
            return replace(plan, then=then)
        most = max(len({_source(plan.slots[name]) for launch in run for name in launch.names}) for run in several)
        return _Writing(plan, self._program(kernels, most), stretch, self._units).plan(runs, then)

    def _program(self, kernels: Mapping[str, tuple[Kernel, str]], memories: int) -> Joined:
        room = next(count for count in _MEMORIES if count >= memories)
        for one in self._programs:
            have = sum(name in one.numbers for name in kernels)
            if one.memories >= room and have >= _COVERED * len(kernels):
                return one
        made = Joined.of(kernels, room)
        self._programs.append(made)
        return made


@dataclass(slots=True)
class _Then:
    """The next stretch, joined as well: `plan.Then`."""

    joiner: Joiner
    then: Then
    stretch: int
    values: tuple[str, ...]

    def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Plan:
        return self.joiner.plan(self.then(shapes, values), self.stretch)


def _digest(launch: Launch) -> str:
    return digest(launch.kernel, signature(launch))


def _runs(plan: Plan) -> Iterator[_Run | _Step]:
    """The steps, with launches in a row as one."""
    run: _Run = []
    total, sources = 0, set[_Source]()
    for step in plan.steps:
        work = _MOST + 1 if isinstance(step, CpuCall) else _work(step, plan.slots)
        if isinstance(step, CpuCall) or work > _MOST:
            yield from (run, step) if run else (step,)
            run, total, sources = [], 0, set()
            continue
        mine = {_source(plan.slots[name]) for name in step.names}
        if total + work > _MOST or len(sources | mine) > _MEMORIES[-1]:
            yield run
            run, total, sources = [], 0, set()
        run.append(step)
        total, sources = total + work, sources | mine
    if run:
        yield run


def _work(launch: Launch, slots: Mapping[str, Slot]) -> int:
    """Multiplications of a launch, or the elements it touches where it says nothing; too many where it has groups."""
    alone = launch.local_size is not None and all(size == 1 for size in launch.local_size)
    if not alone or len(launch.names) > _MEMORIES[-1]:
        return _MOST + 1
    if launch.work:
        return launch.work
    return max((math.prod(slots[name].shape) for name in launch.names if slots[name].home != "weight"), default=0)


def _source(slot: Slot) -> _Source:
    return slot.home, slot.of, slot.stretch


class _Writing:
    """A plan as it is written anew: steps, and behind its data the table that says what they run."""

    def __init__(self, plan: Plan, program: Joined, stretch: int, units: int) -> None:
        self._plan, self._program, self._stretch, self._units = plan, program, stretch, units
        self._slots = dict(plan.slots)
        self._table: list[int] = []
        self._steps: list[_Step] = []

    def plan(self, runs: Sequence[_Run | _Step], then: Then | None) -> Plan:
        """The plan whose steps are these."""
        for run in runs:
            if not isinstance(run, list):
                self._steps.append(run)
                continue
            for piece in self._pieces(run):
                if len(piece) > 1:
                    self._join(piece)
                else:
                    self._steps += piece
        plan = self._plan
        data = plan.data + bytes(-len(plan.data) % _ALIGN)
        self._slots[_TABLE] = Slot("plan", len(data), "u32", (len(self._table),), "", self._stretch)
        data += np.array(self._table, np.uint32).tobytes()
        return replace(plan, steps=tuple(self._steps), slots=self._slots, data=data, then=then)

    def _pieces(self, run: _Run) -> Iterator[_Run]:
        """The launches that the program has, and those between them that it lacks."""
        piece: _Run = []
        for launch in run:
            if _digest(launch) in self._program.numbers:
                piece.append(launch)
                continue
            if piece:
                yield piece
            yield [launch]
            piece = []
        if piece:
            yield piece

    def _join(self, launches: _Run) -> None:
        slots, program = self._plan.slots, self._program
        self._table += [0] * (-len(self._table) % (_ALIGN // 4))
        first, ticket, groups = len(self._table), 0, 1
        self._table += [0] * STATE
        sources: dict[_Source, int] = {}
        for launch in launches:
            found = [slots[name] for name in launch.names]
            places = [(sources.setdefault(_source(slot), len(sources)), slot.offset) for slot in found]
            items, each = math.prod(launch.global_size), self._each(launch)
            self._table += words(launch, program.numbers[_digest(launch)], places, ticket, each)
            ticket, groups = ticket - (-items // each), max(groups, -(-items // each))
        names = [self._whole(source) for source in sources]
        names += names[-1:] * (program.memories - len(names))
        numbers = (np.uint32(first), np.uint32(ticket))
        where = f"{launches[0].node} … {launches[-1].node}"
        args: tuple[Tensor | Scalar, ...] = (Tensor(_TABLE), *numbers, *(Tensor(name) for name in names))
        # twice as many groups as units: a driver may hand several to the thread that comes first
        self._steps.append(Launch(program.kernel, args, (min(groups, 2 * self._units),), (1,), where))

    def _each(self, launch: Launch) -> int:
        """Items of a ticket."""
        items = math.prod(launch.global_size)
        tickets = min(items, _work(launch, self._plan.slots) // _TICKET, _TICKETS * self._units)
        return -(-items // max(tickets, 1))

    def _whole(self, source: _Source) -> str:
        """A name for all of a piece of memory."""
        name = f"joined#{'#'.join(str(one) for one in source)}"
        home, of, stretch = source
        self._slots[name] = Slot(home, 0, "u8", (), of, stretch)
        return name
