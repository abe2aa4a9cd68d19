# SPDX-License-Identifier: Apache-2.0
"""Executables and bindings on a device that may read the caller's memory in place: a session and a memory in.

Where the device reads host memory, nothing is copied; elsewhere onnxruntime copies on each run, and `copies` counts it.
Linked outputs stay on the device. It opens no session and knows no vendor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from dpfedge.backend.api import Array, GraphView
from dpfedge.errors import RunCancelled
from dpfedge_cpu.session import CpuBinding, CpuExecutable, address_of, mapped_errors, run_options

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Hold", "Memory", "PlacedBinding", "PlacedExecutable"]


class Hold(Protocol):
    """Host memory that the device reads in place, for as long as this object lives."""

    def at(self, address: int) -> int:
        """The device's address of a host address inside."""


class Memory(Protocol):
    """The memory of one device as bindings see it."""

    kind: str
    """onnxruntime's word for it: `cuda`, `gpu`."""
    number: int
    """The device's number among those of its kind."""

    def hold(self, array: Array) -> Hold | None:
        """The device's way to `array`'s bytes where they lie; None where it has none and onnxruntime must copy."""

    def wait(self) -> None:
        """Return when everything this thread's runs began has ended and its results can be read."""


class PlacedExecutable(CpuExecutable):
    """A loaded graph whose kernels run on a device; one run at a time, as a session on one stream has it."""

    keeps_links = True
    """For `dpfedge.backend.api.keeps_links`; False where host memory is the device's."""

    def __init__(
        self,
        graph: GraphView,
        session: onnxruntime.InferenceSession,
        memory: Memory,
        *,
        turn: AbstractContextManager[Any] | None = None,
        admit: Callable[[Callable[[], bool]], None] | None = None,
    ) -> None:
        """`turn` is entered for each run (a lock of its own by default); `admit(stopped)` may make new work wait before
        that, returns at once when `stopped()`, and raises at its deadline."""
        super().__init__(graph, session)
        self.memory = memory
        self.turn: AbstractContextManager[Any] = threading.Lock() if turn is None else turn
        self.admit = admit or _at_once

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run; onnxruntime copies inputs to the device and outputs from it."""
        names = [spec.name for spec in self.outputs]
        self.admit(lambda: False)
        with self.turn, mapped_errors(f"graph {self.name}"):
            # no captured graph: it would go on reading the memory of another call
            return dict(zip(names, self.session.run(names, dict(feeds), run_options()), strict=True))

    def bind(self) -> PlacedBinding:
        """A new prepared call."""
        return PlacedBinding(self)


class PlacedBinding(CpuBinding):
    """One prepared call on a device."""

    def __init__(self, executable: PlacedExecutable) -> None:
        self._on = executable
        self._held: dict[str, Hold] = {}
        self._holding: dict[str, Hold] = {}
        self._resident: set[str] = set()
        self._given: dict[str, Array] = {}
        self.copies = 0
        """Tensors copied between host and device so far."""
        super().__init__(executable)

    def set_output(self, name: str, array: Array | None) -> None:
        """Write `name` into `array` in place where the device reaches it, or let onnxruntime allocate it."""
        super().set_output(name, array)
        if array is None:
            self._holding.pop(name, None)

    def link(self, output: str, input: str) -> None:
        """Feed this run's `output` to `input` of the next run; it stays in the device's memory."""
        super().link(output, input)
        self._resident.add(output)
        self._held.pop(input, None)

    def output(self, name: str) -> Array:
        """The bound array, or a view until the next run; of what stays on the device a copy, made when asked for."""
        if name in self._fixed or name not in self._resident or self._values is None:
            return super().output(name)
        if name not in self._given:
            with mapped_errors(self._where):
                self._given[name] = self._values[self._results[name]].numpy()
            self._given[name].flags.writeable = False
            self.copies += 1
        return self._given[name]

    def in_place(self) -> bool:
        """Whether every port lies in memory of the caller that the device reads and writes where it lies."""
        return self._held.keys() == self._ports.keys() and self._holding.keys() == self._results.keys()

    def _place(self, name: str, array: Array, *, written: bool) -> tuple[str, int, int]:
        # what only begins a chain of links is copied once: pinning it would cost more
        begins = not written and name in self._links.values()
        holds, hold = self._holding if written else self._held, None if begins else self._on.memory.hold(array)
        if hold is None:
            holds.pop(name, None)
            return super()._place(name, array, written=written)
        holds[name] = hold
        return self._on.memory.kind, self._on.memory.number, hold.at(address_of(array))

    def _turn(self) -> AbstractContextManager[Any]:
        """What the next run is made inside."""
        return self._on.turn

    def _allocate(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._resident:
                self._io.bind_output(name, self._on.memory.kind, self._on.memory.number)
            else:
                self._io.bind_output(name, "cpu", 0)

    def _run(self) -> None:
        self._on.admit(lambda: self._options.terminate)
        if self._options.terminate:
            raise RunCancelled("the run was cancelled", where=self._where)
        self._given.clear()
        copied = len(self._bound.keys() - self._held.keys())  # a link takes its input from among them
        with self._turn():
            super()._run()
            self._on.memory.wait()
        self.copies += copied + len(self._results.keys() - self._holding.keys() - self._resident)


def _at_once(stopped: Callable[[], bool]) -> None:
    """No work has to wait."""
