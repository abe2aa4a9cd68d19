# SPDX-License-Identifier: Apache-2.0
"""One prepared call: ports in place, an arena of its own, and a stream that runs plans stretch by stretch.

It chooses no kernel and plans no memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError
from dpfedge_opencl.kernels import Kernels
from dpfedge_opencl.library import driver
from dpfedge_opencl.memory import Block, Span
from dpfedge_opencl.plan import CpuCall, Launch, Plan
from dpfedge_opencl.ports import Ports
from dpfedge_opencl.prepared import Prepared
from dpfedge_opencl.segments import Segments
from dpfedge_opencl.stream import Stream

if TYPE_CHECKING:
    from dpfedge_opencl.executable import OpenClExecutable

__all__ = ["OpenClBinding"]

_PREPARED = 8
"""Prepared plans kept per binding; the kernel objects of others serve the next ones."""


class OpenClBinding:
    """Buffers stay where they are between runs; used by one thread at a time, cancelled from any."""

    def __init__(self, executable: OpenClExecutable) -> None:
        self._executable, self._where = executable, executable.where
        self._memory = executable.runtime.memory
        self._stream = Stream(executable.runtime, self._where, executable.urgency)
        self._kernels = Kernels(executable.runtime.native)
        self._ports = Ports(executable.inputs, executable.outputs, self._memory, self._where)
        self._links: dict[str, str] = {}
        self._arenas: dict[int, Block] = {}
        self._data: dict[int, Block] = {}
        self._prepared: OrderedDict[int, Prepared] = OrderedDict()
        self._wrapped: dict[str, Span] = {}
        self._plan: Plan | None = None
        self._results: dict[str, Array] = {}
        self._segments = Segments(executable.graph.segments)
        self.set_input, self.set_output = self._ports.set_input, self._ports.set_output

    @property
    def copies(self) -> int:
        """How often memory of a caller was copied on this device, by any binding."""
        return self._memory.copies

    def link(self, output: str, input: str) -> None:
        """Feed this run's `output` to `input` of the next run; two memories of ours take turns."""
        if output not in self._ports.outputs or input not in self._ports.inputs:
            raise BackendError("no such port", where=self._where, found=f"{output} → {input}")
        self._links[output] = input

    def cancel(self) -> None:
        """End the run in progress before its next window of kernels, and each later one until `rearm`."""
        self._stream.cancelled = True
        self._segments.cancel()

    def rearm(self) -> None:
        """Runs are allowed again."""
        self._stream.cancelled = False
        self._segments.rearm()

    def run(self) -> None:
        """Run once; every bound output is completely written, or BackendError is raised."""
        self._run(fresh=False)
        ports = self._ports
        self._results = {name: self._written(name) for name in ports.outputs}
        for output, input in self._links.items():
            if output in self._segments.made:
                ports.set_input(input, self._segments.made[output].copy())
            else:
                ports.carry(output, input)

    def run_once(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """A run whose outputs are new arrays of the caller's."""
        ports = self._ports
        if feeds.keys() != ports.inputs.keys():
            lacking = ", ".join(sorted(ports.inputs.keys() ^ feeds.keys()))
            raise BackendError("the feeds are not the inputs", where=self._where, found=lacking)
        for name, array in feeds.items():
            ports.set_input(name, array if array.flags.c_contiguous else np.ascontiguousarray(array))
        self._run(fresh=True)
        found = {name: self._written(name) for name in ports.outputs}
        for name in found.keys() & self._segments.made.keys():  # the CPU plugin's memory is overwritten by its next run
            found[name] = found[name].copy()
            self._memory.copied += found[name].nbytes
            self._memory.copies += 1
        ports.forget()
        return found

    def output(self, name: str) -> Array:
        """The last run's `name`: the bound array, or a view of our memory valid until the next run."""
        if name not in self._ports.outputs:
            raise self._ports.no_port(name, self._ports.outputs)
        if name not in self._results:
            raise BackendError("nothing has run yet", where=self._where)
        return self._results[name]

    def _written(self, name: str) -> Array:
        """An output of this run, in the caller's memory, ours, or the CPU plugin's where it alone knew the size."""
        if name in self._segments.made:
            return self._segments.made[name]
        return self._ports.written(name).array

    def _run(self, *, fresh: bool) -> None:
        graph, ports, memory = self._executable.graph, self._ports, self._memory
        self._stream.check_cancelled()
        plan = self._plan
        if plan is None or not ports.same_plan:
            shapes, shared = ports.shapes(), ports.shared()
            made = self._executable.plan(graph.key(shapes, shared), lambda: graph.planned(shapes, shared))
            plan, self._plan, ports.same_plan = made, made, True
        if not memory.in_place:
            for port in ports.read.values():
                memory.enter(port.span, port.array)
        stretch = 0
        while True:
            self._run_stretch(plan, stretch, fresh)
            if plan.then is None:
                break
            plan, stretch = self._next(plan), stretch + 1
        if not memory.in_place:
            for name in ports.outputs - self._segments.made.keys():
                memory.leave(ports.written(name).span, ports.written(name).array)

    def _next(self, plan: Plan) -> Plan:
        """The stretch behind a CPU call, by the shapes of its outputs and the contents it asks for."""
        then, made = plan.then, self._segments.made
        assert then is not None
        last = plan.steps[-1] if plan.steps else None
        shapes = {name: made[name].shape for name in last.outputs} if isinstance(last, CpuCall) else {}
        read = self._ports.read
        values = {name: read[name].array if name in read else made[name] for name in then.values}
        key = (id(plan), tuple(shapes.values()), tuple(array.tobytes() for array in values.values()))
        return self._executable.plan(key, lambda: then(shapes, values))

    def _run_stretch(self, plan: Plan, stretch: int, fresh: bool) -> None:
        prepared = self._prepare(plan)
        self._place(prepared, stretch, fresh)
        if plan.late is not None:
            prepared.write_late({name: port.array.shape for name, port in self._ports.read.items()})
        for step in prepared.steps:
            if isinstance(step, CpuCall):
                self._on_cpu(step, plan)
            else:
                self._stream.run(step)

    def _prepare(self, plan: Plan) -> Prepared:
        found = self._prepared.get(id(plan))
        if found is None:
            if len(self._prepared) >= _PREPARED:
                self._prepared.popitem(last=False)[1].end()
            found = self._prepared_anew(plan)
            self._prepared[id(plan)] = found  # it keeps the plan, so no other one gets this id
        else:
            self._prepared.move_to_end(id(plan))
        return found

    def _prepared_anew(self, plan: Plan) -> Prepared:
        """Kernel objects and their arguments, within a bound; programs, which take longer, before."""
        runtime, where = self._executable.runtime, self._where
        steps = {id(step.kernel): step for step in plan.steps if isinstance(step, Launch)}
        programs = [runtime.programs.handle(step.kernel, f"{where}: {step.node}") for step in steps.values()]
        entries = [step.kernel.entry for step in steps.values()]
        known = self._kernels.knows(zip(programs, entries, strict=True))

        def make() -> Prepared:
            return Prepared(plan, runtime, self._kernels, self._stream.handle, where)

        made = make() if known else driver(make, "clSetKernelArg", where)
        made.known = known
        return made

    def _place(self, prepared: Prepared, stretch: int, fresh: bool) -> None:
        """Memory for everything the plan names; kernels are told of what moved."""
        plan, ports = prepared.plan, self._ports
        arena = self._arenas.get(stretch)
        if plan.arena_bytes and (arena is None or arena.size < plan.arena_bytes):
            more = plan.arena_bytes // 4 if arena is not None else 0  # what grew will grow again
            self._arenas[stretch] = self._memory.allocate(plan.arena_bytes + more)
            ports.changes += 1
        if prepared.data is not None and self._data.get(stretch) is not prepared.data:
            self._data[stretch] = prepared.data
            ports.changes += 1
        if fresh or prepared.changes != ports.changes:
            ports.make(plan.shapes, fresh=fresh and not stretch)
            spans = {source: self._span(*source) for source in prepared.sources}
            if prepared.changes < 0 and not prepared.known:
                driver(lambda: prepared.point_all(spans), "clSetKernelArg", self._where)
            else:
                prepared.point_all(spans)
            prepared.changes = ports.changes

    def _span(self, home: str, of: str | int) -> Span:
        if home == "arena":
            return self._arenas[int(of)].span
        if home == "plan":
            return self._data[int(of)].span
        name = str(of)
        if home == "input":
            return self._ports.read[name].span
        if home == "output":
            return self._ports.written(name).span
        if home == "weight":
            return self._executable.weights[name]
        if name not in self._wrapped:
            self._wrapped[name] = self._memory.wrap(self._segments.made[name], write=False)
        return self._wrapped[name]

    def _on_cpu(self, call: CpuCall, plan: Plan) -> None:
        """One CPU call; where memory is not used in place, around it go what it reads and what it writes."""
        memory = self._memory
        if not memory.in_place:
            for name in call.inputs:
                if (slot := plan.slots.get(name)) is not None and slot.home == "output":
                    memory.leave(self._ports.written(slot.of).span, self._ports.written(slot.of).array)
        self._segments.run(call, plan, self._host, self._ports.fixed)
        if self._segments.made:  # memory that the CPU plugin allocates is another one after each run
            self._wrapped.clear()
            self._ports.changes += 1
        if not memory.in_place:
            for block in (*self._arenas.values(), *self._data.values()):
                block.release()
            for name in call.outputs:
                if (slot := plan.slots.get(name)) is not None and slot.home == "output":
                    memory.enter(self._ports.written(slot.of).span, self._ports.written(slot.of).array)
        self._stream.check_cancelled()

    def _host(self, home: str, of: str | int) -> Array:
        """The bytes of a source for the CPU."""
        if home == "arena":
            return self._arenas[int(of)].host()
        if home == "plan":
            return self._data[int(of)].host()
        name = str(of)
        if home == "weight":
            return self._executable.graph.weights[name]
        if home == "cpu":
            return self._segments.made[name]
        return (self._ports.read[name] if home == "input" else self._ports.written(name)).array
