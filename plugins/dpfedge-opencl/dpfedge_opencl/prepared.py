# SPDX-License-Identifier: Apache-2.0
"""A plan made ready to run again and again: one kernel object per launch with its arguments set, in a stream's windows.

What moves between runs (the caller's memory) is set anew where it moved, and nothing else. It allocates no tensor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from dpfedge.errors import BackendError
from dpfedge_opencl.kernels import KernelObject, Kernels, Kind
from dpfedge_opencl.memory import Span
from dpfedge_opencl.plan import CpuCall, Launch, Plan, Slot, Tensor
from dpfedge_opencl.runtime import Runtime
from dpfedge_opencl.stream import Batch, Call

__all__ = ["Prepared", "Source", "source_of"]

Source = tuple[str, str | int]
"""Memory that a value lies in: ("input", name), ("output", name), ("weight", section), ("arena", stretch),
("plan", stretch), ("cpu", name)."""


def source_of(slot: Slot) -> Source:
    """The memory that `slot` is a part of."""
    return slot.home, slot.stretch if slot.home in ("arena", "plan") else slot.of


class Prepared:
    """The kernels of one plan on one stream."""

    def __init__(self, plan: Plan, runtime: Runtime, kernels: Kernels, queue: ctypes.c_void_p, where: str) -> None:
        self.plan = plan
        self._where, self._pool = where, kernels
        self._moving: dict[Source, list[tuple[KernelObject, int, int]]] = {}
        self._set: dict[Source, int] = {}
        self._kernels: list[KernelObject] = []
        self._late: object = None
        self.known = False
        """Whether the driver made all of its kernels before, for an earlier plan."""
        self.changes = -1
        """`Ports.changes` when the kernels were last told where everything is."""
        self.data = runtime.memory.allocate(len(plan.data)) if plan.data else None
        """What the host worked out of the shapes, where kernels read it."""
        if self.data is not None:
            self.data.host()[: len(plan.data)] = np.frombuffer(plan.data, np.uint8)
            self.data.release()
        self.steps: list[Batch | CpuCall] = []
        calls: list[Call] = []
        nodes: list[str] = []
        self._kinds: set[Kind] = set()
        self._programs: dict[int, int] = {}
        for step in plan.steps:
            if isinstance(step, CpuCall):
                self._close(calls, nodes)
                self.steps.append(step)
                calls, nodes = [], []
            else:
                calls.append(self._call(step, runtime, queue))
                nodes.append(step.node)
        self._close(calls, nodes)

    def end(self) -> None:
        """Give the kernel objects back; the plan is not run any more."""
        for kernel in reversed(self._kernels):  # the next plan takes them in its order, mostly the same
            self._pool.give(kernel)
        self._kernels.clear()

    @property
    def sources(self) -> Sequence[Source]:
        """Every memory the kernels use."""
        return tuple(self._moving)

    def point_all(self, spans: Mapping[Source, Span]) -> None:
        """Let the kernels use each of `spans`."""
        for source, span in spans.items():
            self.point(source, span)

    def point(self, source: Source, span: Span) -> None:
        """Let the kernels use `span` as `source`."""
        if self._set.get(source) == span.serial:
            return
        memory = ctypes.byref(ctypes.c_void_p(span.handle))
        for kernel, index, delta in self._moving[source]:
            kernel.point(index, span, memory, delta, self._where)
        self._set[source] = span.serial

    def write_late(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Write what follows from sizes that the plan does not depend on, where they are others than the last run's."""
        late, data, key = self.plan.late, self.data, tuple(shapes.values())
        if late is None or data is None or key == self._late:
            return
        host = data.host()
        for offset, contents in late(shapes):
            host[offset : offset + len(contents)] = np.frombuffer(contents, np.uint8)
        data.release()
        self._late = key

    def _close(self, calls: Sequence[Call], nodes: Sequence[str]) -> None:
        if calls:
            self.steps.append(Batch(calls, nodes, self._pool.launched, frozenset(self._kinds)))
            self._kinds.clear()

    def _call(self, launch: Launch, runtime: Runtime, queue: ctypes.c_void_p) -> Call:
        where = f"{self._where}: {launch.node}"
        program = self._programs.get(id(launch.kernel))
        if program is None:
            program = self._programs[id(launch.kernel)] = runtime.programs.handle(launch.kernel, where)
        made = self._pool.take(program, launch.kernel.entry, where)
        self._kernels.append(made)
        self._kinds.add((made.key, launch.local_size))
        index, same = 0, made.launch is launch
        for argument in launch.args:
            if isinstance(argument, Tensor):
                slot = self._slot(argument.name, where)
                self._moving.setdefault(source_of(slot), []).append((made, index, slot.offset))
                index += 2
            else:
                if not same:
                    made.scalar(index, argument.tobytes(), where)
                index += 1
        if not same:
            made.call, made.launch = _arguments(queue, made.handle, launch), launch
        return made.call

    def _slot(self, name: str, where: str) -> Slot:
        try:
            return self.plan.slots[name]
        except KeyError as error:
            raise BackendError("the plan gives a value no place", where=where, found=name) from error


def _arguments(queue: ctypes.c_void_p, kernel: ctypes.c_void_p, launch: Launch) -> Call:
    dims = len(launch.global_size)
    sizes = (ctypes.c_size_t * dims)(*launch.global_size)
    local = None if launch.local_size is None else (ctypes.c_size_t * dims)(*launch.local_size)
    return queue, kernel, dims, None, sizes, local, 0, None, None
