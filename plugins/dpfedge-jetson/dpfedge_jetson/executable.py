# SPDX-License-Identifier: Apache-2.0
"""A graph on a DLA: an engine, a memory and a stream in; the contract's executable and bindings out.

CPU and DLA share one memory: ports in a link's arena, or in any mapping, are read and written where they lie. Others go
through memory of the binding's own, and each copy is counted. A linked output's memory becomes that of the input it
feeds.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dpfedge_cpu.placed import Hold, Memory
from dpfedge_cpu.session import address_of

from dpfedge.backend.api import Array, GraphView
from dpfedge.backend.host import check_writable
from dpfedge.errors import BackendError
from dpfedge.tensors import TensorSpec
from dpfedge_jetson.engine import Engine, failed

__all__ = ["DlaBinding", "DlaExecutable"]


class DlaExecutable:
    """An engine ready to run; one run at a time."""

    def __init__(self, graph: GraphView, engine: Engine, memory: Memory, stream: int, wait: Callable[[], None]) -> None:
        """`wait` returns when the stream has done what was begun, and raises what went wrong."""
        self.name, self.inputs, self.outputs = graph.name, graph.inputs, graph.outputs
        self.where = f"graph {graph.name}"
        self.memory, self.stream, self.wait = memory, stream, wait
        self.turn = threading.Lock()
        self._engine: Engine | None = engine
        _check_ports(self.where, engine, (*graph.inputs, *graph.outputs))

    @property
    def engine(self) -> Engine:
        """The open engine; BackendError after `close`."""
        if self._engine is None:
            raise BackendError("the executable is closed", where=self.where)
        return self._engine

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run with new arrays as outputs."""
        call = self.bind()
        for name, array in feeds.items():
            call.set_input(name, np.ascontiguousarray(array))
        call.run()
        return {spec.name: call.output(spec.name).copy() for spec in self.outputs}

    def bind(self) -> DlaBinding:
        """A new prepared call."""
        return DlaBinding(self)

    def close(self) -> None:
        """Give the engine back."""
        self._engine = None


@dataclass(frozen=True, slots=True)
class _Place:
    """Memory the DLA reaches, for as long as `hold` lives."""

    array: Array
    hold: Hold


class DlaBinding:
    """One prepared call."""

    def __init__(self, executable: DlaExecutable) -> None:
        self._on, self._where = executable, executable.where
        self._inputs = {spec.name: spec for spec in executable.inputs}
        self._outputs = {spec.name: spec for spec in executable.outputs}
        self._context = executable.engine.context()
        self._bound: dict[str, Array] = {}
        self._held: dict[str, _Place] = {}
        """Port → the caller's memory, where the DLA reaches it."""
        self._own: dict[str, _Place] = {}
        """Port → memory of this binding's own in its place."""
        self._fed: dict[str, _Place] = {}
        self._links: dict[str, str] = {}
        self._last: dict[str, Array] = {}
        self.copies = 0
        """Tensors copied so far, because the DLA does not reach them where they lie."""

    def set_input(self, name: str, array: Array) -> None:
        """Read `name` from `array` on each following run."""
        self._take(self._inputs, name, array)
        self._fed.pop(name, None)

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array`, or into memory of the binding's own."""
        if array is not None:
            check_writable(self._where, name, array)
            self._take(self._outputs, name, array)
        elif name not in self._outputs:
            raise _no_port(self._where, name, self._outputs)
        else:
            self._bound.pop(name, None)
            self._held.pop(name, None)

    def link(self, output: str, input: str) -> None:
        """Feed this run's `output` to `input` of the next run, where it lies."""
        if output not in self._outputs or input not in self._inputs:
            raise BackendError("no such port", where=self._where, found=f"{output} → {input}")
        self._links[output] = input

    def run(self) -> None:
        """Run once; on return every output is written."""
        engine = self._on.engine
        with self._on.turn:
            places = {name: self._input(name) for name in self._inputs}
            places |= {name: self._held.get(name) or self._memory(name, spec) for name, spec in self._outputs.items()}
            for name, place in places.items():
                self._context.set_tensor_address(name, place.hold.at(address_of(place.array)))
            if not self._context.execute_async_v3(self._on.stream):
                raise failed("the DLA did not run", self._where, engine.words)
            self._on.wait()
        self._finish(places)

    def output(self, name: str) -> Array:
        """The bound array, or the binding's own memory until the next run."""
        if name not in self._outputs:
            raise _no_port(self._where, name, self._outputs)
        if name in self._bound:
            return self._bound[name]
        if name not in self._last:
            raise BackendError("nothing has run yet", where=self._where)
        return self._last[name]

    def _take(self, ports: Mapping[str, TensorSpec], name: str, array: Array) -> None:
        if name not in ports:
            raise _no_port(self._where, name, ports)
        spec = ports[name]
        if array.dtype != spec.numpy or not array.flags.c_contiguous or array.shape != spec.dims:
            raise BackendError(
                "array does not fit the port", where=f"{self._where}: {name}",
                found=f"{array.dtype}{list(array.shape)}, contiguous {array.flags.c_contiguous}",
                allowed=f"C-contiguous {spec.dtype}{list(spec.dims)}",
            )  # fmt: skip
        self._bound[name] = array
        hold = self._on.memory.hold(array)
        if hold is None:
            self._held.pop(name, None)
        else:
            self._held[name] = _Place(array, hold)

    def _input(self, name: str) -> _Place:
        """What the DLA reads: linked memory, the caller's own, or a copy of it."""
        if name in self._fed:
            return self._fed[name]
        if name not in self._bound:
            raise BackendError("an input is missing", where=self._where, found=f"none for {name}")
        if name in self._held:
            return self._held[name]
        own = self._memory(name, self._inputs[name])
        own.array[...] = self._bound[name]
        self.copies += 1
        return own

    def _finish(self, places: Mapping[str, _Place]) -> None:
        """Copy what the DLA could not write in place; hand linked memory on."""
        for name in self._outputs:
            self._last[name] = places[name].array
            if name in self._bound and name not in self._held:
                self._bound[name][...] = places[name].array
                self.copies += 1
        for output, input in self._links.items():
            read, written = self._fed.get(input), places[output]
            self._fed[input] = written
            if self._own.get(output) is written:  # the next run must not write what it reads
                del self._own[output]
                if read is not None and read.array is not self._bound.get(output):
                    self._own[output] = read

    def _memory(self, name: str, spec: TensorSpec) -> _Place:
        if name not in self._own:
            array = _mapping(spec)
            hold = self._on.memory.hold(array)
            if hold is None:
                raise BackendError(
                    "the DLA does not reach the host's memory", where=f"{self._where}: {name}",
                    remedy="the driver of JetPack must be able to pin it: look at `dmesg`",
                )  # fmt: skip
            self._own[name] = _Place(array, hold)
        return self._own[name]


def _mapping(spec: TensorSpec) -> Array:
    """Zeroed memory of whole pages, which can be pinned."""
    shape = tuple(int(dim) for dim in spec.dims)
    count = int(np.prod(shape))
    return np.frombuffer(mmap.mmap(-1, max(1, count * spec.numpy.itemsize)), spec.numpy, count).reshape(shape)


def _no_port(where: str, name: str, ports: Mapping[str, Any]) -> BackendError:
    return BackendError("no such port", where=where, found=name, allowed=", ".join(ports))


def _check_ports(where: str, engine: Engine, specs: tuple[TensorSpec, ...]) -> None:
    found = {name: (shape, dtype) for name, _, shape, dtype in engine.ports()}
    wanted = {spec.name: (tuple(spec.dims), spec.numpy) for spec in specs}
    if found != wanted:
        raise BackendError(
            "the engine has other ports than the graph", where=where, found=str(found), allowed=str(wanted),
            remedy="run `dpfedge seal` again",
        )  # fmt: skip
