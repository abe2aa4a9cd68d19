# SPDX-License-Identifier: Apache-2.0
"""The calls of one stage to its executables: each ends when nobody waits for it any more, and runs at its urgency.

A bound model in, the same one out, whose bindings are watched while they run: a thread of the stage's process ends a
run at its next operator (`Cancels.cancel`) when its request was closed, its turn cancelled, or its time is over. Where
a device tells urgencies apart every graph is loaded twice, and work less urgent than usual goes to the second one.
It decides nothing about requests; `runner.py` says whose step it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from dpfedge.backend.api import (
    Array,
    Backend,
    Binding,
    Budget,
    Cancels,
    Device,
    Executable,
    GraphView,
    cancelling,
    keeps_links,
)
from dpfedge.errors import RunCancelled
from dpfedge.pipeline.priority import be_fifo_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpfedge.binding.bound import BoundModel

__all__ = ["PATIENT", "Calls", "Work"]

PATIENT = 7
"""The urgency of the second executable; work over `_USUAL` runs there."""

_USUAL = 3
_PERIOD_S = 0.004  # a person who interrupts hears no difference
_QUIET = 25  # looks without a run until the watching thread sleeps
_WHOLE = 0xFFFF_FFFE  # a turn that is cancelled only when the whole request is


class Work(Protocol):
    """The request whose step is run; `pipeline.io.LinkIO` is one."""

    key: int
    urgency: int
    deadline_ns: int
    working: int | None
    """The turn that is computed; None: the request as a whole."""


class Calls:
    """Of one stage. One thread runs them; another one may end them."""

    def __init__(self, cancelled: Callable[[int, int], bool] = lambda key, turn: False) -> None:
        self.cancelled = cancelled
        """`cancelled(key, turn)`: whether that turn was cancelled, or the request is closed; costs next to nothing. It
        is asked for `work` only, so it may come after the models."""
        self.work: Work | None = None
        """Whose step it is; None: the stage's own work, which nobody ends."""
        self.doubled = False
        """Whether there are executables of two urgencies."""
        self.ended = 0
        """Runs that were ended on their way."""
        self._warming = False
        self._running: Cancels | None = None
        self._struck = False
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._watcher: threading.Thread | None = None

    def through(self, model: BoundModel) -> BoundModel:
        """The model, all its calls watched; as it is where its device neither cancels nor tells urgencies apart."""
        able = model._backend.capabilities(model.device)
        self.doubled = self.doubled or able.priorities > 1
        if able.cancels and self._watcher is None:
            self._watcher = threading.Thread(target=self._watch, name="dpf-cancel", daemon=True)
            self._watcher.start()
        if not able.cancels and able.priorities == 1:
            return model
        return replace(model, _backend=cast(Backend, _Backend(model._backend, self, twice=able.priorities > 1)))

    def be_fifo(self, priority: int) -> str | None:
        """A stage with that real-time priority: who ends its runs goes before it, or would never run on its core."""
        return be_fifo_before(priority, 0 if self._watcher is None else self._watcher.native_id or 0)

    @contextmanager
    def patiently(self) -> Iterator[None]:
        """Inside, the stage's own work runs on the second executables: they are warmed too."""
        self._warming = True
        try:
            yield
        finally:
            self._warming = False

    @property
    def patient(self) -> bool:
        """Whether what runs now is less urgent than usual."""
        return self._warming if self.work is None else self.work.urgency > _USUAL

    def check(self) -> None:
        """RunCancelled when nobody waits for what would run now."""
        if self._over():
            raise RunCancelled("nobody waits for the run any more", where="stage")

    def run(self, call: Binding, stop: Cancels) -> None:
        """Run `call`; RunCancelled when it was ended on its way. It may run again afterwards."""
        self._running = stop
        try:
            self.check()  # after the line above: a cancel that this does not see finds the run
            if not self._wake.is_set():
                self._wake.set()
            call.run()
        finally:
            with self._lock:
                self._running, struck, self._struck = None, self._struck, False
            if struck:
                self.ended += 1
                stop.rearm()

    def _over(self) -> bool:
        work = self.work
        if work is None:
            return False
        turn = _WHOLE if work.working is None else work.working
        return self.cancelled(work.key, turn) or 0 < work.deadline_ns <= time.monotonic_ns()

    def _watch(self) -> None:
        while True:
            self._wake.wait()
            quiet = 0
            while quiet < _QUIET:
                time.sleep(_PERIOD_S)
                quiet = 0 if self._look() else quiet + 1
            self._wake.clear()
            if self._running is not None:  # it began while this was about to sleep
                self._wake.set()

    def _look(self) -> bool:
        """Whether something runs; ends it when it should."""
        with self._lock:
            running = self._running
            if running is not None and not self._struck and self._over():
                self._struck = True
                running.cancel()
        return running is not None


class _Backend:
    """A backend whose executables are watched."""

    def __init__(self, backend: Backend, calls: Calls, *, twice: bool) -> None:
        self._backend, self._calls, self._twice = backend, calls, twice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> Executable:
        """The graph for usual and more urgent work, and once more for the rest, where the device tells them apart."""
        usual = self._backend.load(graph, device, budget)
        if not self._twice:
            return _Executable((usual,), self._calls)
        return _Executable((usual, self._backend.load(graph, device, replace(budget, urgency=PATIENT))), self._calls)


class _Executable:
    """A graph for usual work, and maybe for patient work."""

    def __init__(self, graphs: tuple[Executable, ...], calls: Calls) -> None:
        self._graphs, self._calls = graphs, calls
        self.name, self.inputs, self.outputs = graphs[0].name, graphs[0].inputs, graphs[0].outputs
        self.keeps_links = keeps_links(graphs[0])

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run, which ends by itself only: who wants it ended binds."""
        self._calls.check()
        return self._graphs[self._calls.patient and len(self._graphs) > 1].run(feeds)

    def bind(self) -> Binding:
        """A prepared call that ends when nobody waits for it."""
        return (
            _Once(self._graphs[0].bind(), self._calls) if len(self._graphs) == 1 else _Twice(self._graphs, self._calls)
        )

    def close(self) -> None:
        """Unload all of it."""
        for graph in self._graphs:
            graph.close()


class _Once:
    """A binding that is watched; all but `run` is its own."""

    def __init__(self, call: Binding, calls: Calls) -> None:
        self._call, self._calls, self._stop = call, calls, cancelling(call)
        self.set_input, self.set_output = call.set_input, call.set_output
        self.link, self.output = call.link, call.output

    def run(self) -> None:
        """Run, unless nobody waits."""
        if self._stop is not None:
            self._calls.run(self._call, self._stop)
        else:
            self._calls.check()
            self._call.run()


class _Twice:
    """Two bindings over the same memory, of which the urgency of the moment chooses.

    One that hands outputs to its next run (`link`) stays where that row of runs began: what it hands over is there. A
    new row begins when every input that is fed so was set anew.
    """

    def __init__(self, graphs: tuple[Executable, ...], calls: Calls) -> None:
        self._graphs, self._calls = graphs, calls
        self._made: dict[bool, _Once] = {}
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._links: list[tuple[str, str]] = []
        self._at = False
        self._fixed = False
        self._renewed: set[str] = set()

    def set_input(self, name: str, array: Array) -> None:
        """Read it from there, wherever the next run is."""
        self._now().set_input(name, array)
        self._inputs[name] = array
        if self._fixed:
            self._renewed.add(name)
            self._fixed = not self._renewed.issuperset(fed for _, fed in self._links)

    def set_output(self, name: str, array: Array | None) -> None:
        """Write it there, wherever the next run is."""
        self._now().set_output(name, array)
        self._outputs[name] = array

    def link(self, output: str, input: str) -> None:
        """Hand it over; the runs stay together from the next one on."""
        self._now().link(output, input)
        self._links.append((output, input))

    def run(self) -> None:
        """Run where the urgency of the moment belongs."""
        if not self._fixed and self._at != self._calls.patient:
            self._move()
        self._fixed = bool(self._links)
        self._renewed.clear()
        self._now().run()

    def output(self, name: str) -> Array:
        """Of the last run."""
        return self._now().output(name)

    def _now(self) -> _Once:
        if self._at not in self._made:
            self._made[self._at] = _Once(self._graphs[self._at].bind(), self._calls)
        return self._made[self._at]

    def _move(self) -> None:
        self._at = not self._at
        call = self._now()
        for name, array in self._inputs.items():
            call.set_input(name, array)
        for name, fixed in self._outputs.items():
            call.set_output(name, fixed)
        for output, input in self._links:
            call.link(output, input)
