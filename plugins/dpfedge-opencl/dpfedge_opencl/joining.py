# SPDX-License-Identifier: Apache-2.0
"""Launches of a plan become one, where the device runs a work-group on one thread: as many as a millisecond holds.

How large each is says `Launch.work`, or the elements of what it computes and reads of what was computed. A plan stays
what it was in all else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dpfedge.backend.api import Array
from dpfedge_opencl.joined import HEAD, STATE, Joined, digest, signature, words_of
from dpfedge_opencl.ops.api import Facts
from dpfedge_opencl.plan import CpuCall, Home, Launch, Plan, Scalar, Slot, Tensor, Then

__all__ = ["Joiner"]

_MOST = 1 << 26
"""Multiplications (or elements) of all launches in one: about a millisecond, after which a run can be cancelled."""
_ALONE = 1 << 21
"""The same of a launch that has one group: waking a second thread takes about as long."""
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
_KEPT = 1 << 13
"""Launches whose words are kept: those of a step are mostly those of the last one."""
_Source = tuple[Home, str, int]


@dataclass(slots=True)
class _Known:
    """What of a launch is the same in every plan that has it."""

    launch: Launch
    digest: str
    kinds: str
    work: int
    words: list[int]
    """Its words in a table, for kernel 0 and memory 0."""
    places: tuple[int, ...]
    """Where in its words each of its tensors stands."""


@dataclass(slots=True)
class _Run:
    """Launches in a row, each with (memory, offset) of its tensors, and all of that memory."""

    launches: list[tuple[_Known, list[tuple[_Source, int]]]] = field(default_factory=list)
    sources: set[_Source] = field(default_factory=set)
    work: int = 0


_Step = Launch | CpuCall


class Joiner:
    """Joins the plans of one graph on one device; programs that it knows are used before new ones are made."""

    def __init__(self, facts: Facts, known: Sequence[str] = ()) -> None:
        self._units = facts.compute_units if facts.cpu else 0
        self._programs = [Joined(text) for text in known]
        self._known: dict[int, _Known] = {}

    @property
    def texts(self) -> Sequence[str]:
        """The programs' texts, for a later `Joiner` of the graph."""
        return [one.kernel.source for one in self._programs]

    def plan(self, plan: Plan, stretch: int = 0) -> Plan:
        """The plan with its small launches joined; it is the stretch of a run with this number."""
        if not self._units:
            return plan
        runs = list(self._runs(plan))
        several = [one for one in runs if isinstance(one, _Run) and len(one.launches) > 1]
        kernels = {known.digest: known for run in several for known, _ in run.launches}
        then = None if plan.then is None else _Then(self, plan.then, stretch + 1, plan.then.values)
        if not kernels:
            return replace(plan, then=then)
        program = self._program(kernels, max(len(run.sources) for run in several))
        return _Writing(plan, program, stretch, self._units).plan(runs, then)

    def _program(self, kernels: Mapping[str, _Known], memories: int) -> Joined:
        room = next(count for count in _MEMORIES if count >= memories)
        for one in self._programs:
            have = len(kernels.keys() & one.numbers.keys())
            if one.memories >= room and have >= _COVERED * len(kernels):
                return one
        made = Joined.of({name: (known.launch.kernel, known.kinds) for name, known in kernels.items()}, room)
        self._programs.append(made)
        return made

    def _runs(self, plan: Plan) -> Iterator[_Run | _Step]:
        """The steps, with launches in a row as one."""
        run = _Run()
        for step in plan.steps:
            known = None if isinstance(step, CpuCall) else self._small(step, plan.slots)
            if known is None:
                yield from (run, step) if run.launches else (step,)
                run = _Run()
                continue
            slots = [plan.slots[name] for name in known.launch.names]
            places = [((slot.home, slot.of, slot.stretch), slot.offset) for slot in slots]
            sources = run.sources.union(source for source, _ in places)
            if run.launches and (run.work + known.work > _MOST or len(sources) > _MEMORIES[-1]):
                yield run
                run = _Run()
                sources = {source for source, _ in places}
            run.launches.append((known, places))
            run.work, run.sources = run.work + known.work, sources
        if run.launches:
            yield run

    def _small(self, launch: Launch, slots: Mapping[str, Slot]) -> _Known | None:
        """What is known of the launch; None where it is too large to share one, or has work-groups."""
        known = self._known.get(id(launch))
        if known is None or known.launch is not launch:
            if len(self._known) >= _KEPT:
                self._known.clear()
            kinds = signature(launch)
            words, places = words_of(launch)
            known = _Known(launch, digest(launch.kernel, kinds), kinds, _work(launch, slots), words, places)
            self._known[id(launch)] = known
        return known if known.work <= _MOST else None


@dataclass(slots=True)
class _Then:
    """The next stretch, joined as well: `plan.Then`."""

    joiner: Joiner
    then: Then
    stretch: int
    values: tuple[str, ...]

    def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Plan:
        return self.joiner.plan(self.then(shapes, values), self.stretch)


def _work(launch: Launch, slots: Mapping[str, Slot]) -> int:
    """Multiplications of a launch, or the elements it touches where it says nothing; too many where it has groups."""
    alone = launch.local_size is not None and all(size == 1 for size in launch.local_size)
    if not alone or len(launch.names) > _MEMORIES[-1]:
        return _MOST + 1
    if launch.work:
        return launch.work
    return max((math.prod(slots[name].shape) for name in launch.names if slots[name].home != "weight"), default=0)


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
            if isinstance(run, _Run):
                self._pieces(run)
            else:
                self._steps.append(run)
        data = self._plan.data + bytes(-len(self._plan.data) % _ALIGN)
        self._slots[_TABLE] = Slot("plan", len(data), "u32", (len(self._table),), "", self._stretch)
        data += np.array(self._table, np.uint32).tobytes()
        return replace(self._plan, steps=tuple(self._steps), slots=self._slots, data=data, then=then)

    def _pieces(self, run: _Run) -> None:
        """The launches that the program has, and those between them that it lacks."""
        piece = _Run()
        for known, places in run.launches:
            if known.digest in self._program.numbers:
                piece.launches.append((known, places))
                continue
            self._join(piece)
            self._steps.append(known.launch)
            piece = _Run()
        self._join(piece)

    def _join(self, piece: _Run) -> None:
        """One launch for the piece's; the launch itself where it is the only one."""
        if len(piece.launches) < 2:
            self._steps += [known.launch for known, _ in piece.launches]
            return
        table, numbers = self._table, self._program.numbers
        table += [0] * (-len(table) % (_ALIGN // 4))
        first, ticket, groups = len(table), 0, 1
        table += [0] * STATE
        sources: dict[_Source, int] = {}
        for known, places in piece.launches:
            begin = len(table)
            table += known.words
            table[begin] = numbers[known.digest]
            items, each = math.prod(known.launch.global_size), self._each(known)
            table[begin + 5 : begin + HEAD] = ticket, each
            ticket, groups = ticket - (-items // each), max(groups, -(-items // each))
            for at, (source, offset) in zip(known.places, places, strict=True):
                table[begin + at] = sources.setdefault(source, len(sources))
                table[begin + at + 1], table[begin + at + 2] = offset & 0xFFFFFFFF, offset >> 32
        if sum(known.work for known, _ in piece.launches) < _ALONE:
            groups = 1
        names = [self._whole(source) for source in sources]
        names += names[-1:] * (self._program.memories - len(names))
        where = f"{piece.launches[0][0].launch.node} … {piece.launches[-1][0].launch.node}"
        args: list[Tensor | Scalar] = [Tensor(_TABLE), np.uint32(first), np.uint32(ticket)]
        args += [Tensor(name) for name in names]
        # twice as many groups as units: a driver may hand several to the thread that comes first
        self._steps.append(Launch(self._program.kernel, tuple(args), (min(groups, 2 * self._units),), (1,), where))

    def _each(self, known: _Known) -> int:
        """Items of a ticket."""
        items = math.prod(known.launch.global_size)
        tickets = min(items, known.work // _TICKET, _TICKETS * self._units)
        return -(-items // max(tickets, 1))

    def _whole(self, source: _Source) -> str:
        """A name for all of a piece of memory."""
        name = f"joined#{'#'.join(str(one) for one in source)}"
        home, of, stretch = source
        self._slots[name] = Slot(home, 0, "u8", (), of, stretch)
        return name
