# SPDX-License-Identifier: Apache-2.0
"""The calls of a stage: ended when nobody waits any more, run at the urgency of whose step it is."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget, Capabilities, Device, keeps_links
from dpfedge.binding.bound import BoundModel
from dpfedge.errors import RunCancelled
from dpfedge.package.manifest import Graph
from dpfedge.pipeline.calls import PATIENT, Calls
from dpfedge.pipeline.runner import StageRunner
from dpfedge.stage.api import Kind, RequestIO, Steps

DEVICE = Device("cpu:0", "fake", "cpu.x86_64", "fake", "x86-64-v3", frozenset(), 1 << 30)
LONG_S = 30.0


class FakeBinding:
    """A call that runs until it is cancelled, or for no time at all."""

    def __init__(self, budget: Budget, log: list[Any]) -> None:
        self.budget, self.log = budget, log
        self.stopped, self.began = threading.Event(), threading.Event()
        self.long = False

    def set_input(self, name: str, array: Any) -> None:
        self.log.append((self.budget.urgency, "in", name, array))

    def set_output(self, name: str, array: Any) -> None:
        self.log.append((self.budget.urgency, "out", name, array))

    def link(self, output: str, input: str) -> None:
        self.log.append((self.budget.urgency, "link", output, input))

    def run(self) -> None:
        self.began.set()
        if self.stopped.wait(LONG_S if self.long else 0.0):
            raise RunCancelled("the run was cancelled", where="fake")
        self.log.append((self.budget.urgency, "ran"))

    def cancel(self) -> None:
        self.stopped.set()

    def rearm(self) -> None:
        self.stopped.clear()

    def output(self, name: str) -> Any:
        return self.budget.urgency


class FakeExecutable:
    inputs: tuple[Any, ...] = ()
    outputs: tuple[Any, ...] = ()

    def __init__(self, name: str, budget: Budget, log: list[Any]) -> None:
        self.name, self.budget, self.log = name, budget, log
        self.calls: list[FakeBinding] = []

    def run(self, feeds: Any) -> Any:
        return {"y": self.budget.urgency}

    def bind(self) -> FakeBinding:
        self.calls.append(FakeBinding(self.budget, self.log))
        return self.calls[-1]

    def close(self) -> None:
        self.log.append((self.budget.urgency, "closed"))


class FakeBackend:
    """As able as a test wants."""

    name, note = "fake", "its own"

    def __init__(self, *, cancels: bool = True, priorities: int = 1) -> None:
        self.able = Capabilities(frozenset({"f32"}), True, True, cancels=cancels, priorities=priorities)
        self.loaded: list[FakeExecutable] = []
        self.log: list[Any] = []

    def capabilities(self, device: Device) -> Capabilities:
        return self.able

    def load(self, graph: Any, device: Device, budget: Budget) -> FakeExecutable:
        self.loaded.append(FakeExecutable(graph.name, budget, self.log))
        return self.loaded[-1]


def model(backend: Any) -> BoundModel:
    package: Any = SimpleNamespace(section=lambda name: memoryview(b""))
    return BoundModel("m", "toy", {}, DEVICE, package, backend, {}, {"g": Graph("g", (), (), (), {})})


class Table:
    """Which requests were cancelled, from which turn down."""

    def __init__(self) -> None:
        self.before: dict[int, int] = {}

    def cancelled(self, key: int, turn: int) -> bool:
        return turn < self.before.get(key, 0)


def work(**change: Any) -> Any:
    return SimpleNamespace(**{"key": 7, "urgency": 3, "deadline_ns": 0, "working": None} | change)


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def calls(table: Table) -> Calls:
    return Calls(table.cancelled)


def made(calls: Calls, backend: FakeBackend) -> tuple[Any, FakeBinding]:
    """A watched call, and the fake behind it, which runs long."""
    call = calls.through(model(backend)).load("g", Budget()).bind()
    fake = backend.loaded[0].calls[0]
    fake.long = True
    return call, fake


def ended_by(call: Any, fake: FakeBinding, action: Callable[[], object]) -> bool:
    """Whether a run that is under way ends when `action` happens, and not at its own end."""

    def later() -> None:
        assert fake.began.wait(LONG_S)
        action()

    thread = threading.Thread(target=later)
    thread.start()
    entries = len(fake.log)
    with pytest.raises(RunCancelled):
        call.run()
    thread.join()
    return len(fake.log) == entries


def test_run__ends_when_its_turn_is_cancelled(calls: Calls, table: Table) -> None:
    """On its way; the call works again afterwards, for the next turn."""
    call, fake = made(calls, FakeBackend())
    calls.work = work(working=4)
    assert ended_by(call, fake, lambda: table.before.update({7: 5}))
    assert calls.ended == 1
    calls.work, fake.long = work(working=5), False
    call.run()
    assert fake.log == [(3, "ran")]


def test_run__of_a_stage_without_turns_ends_with_the_request(calls: Calls, table: Table) -> None:
    """Cancelled turns are nothing to it; the end of all of them is."""
    call, fake = made(calls, FakeBackend())
    calls.work, table.before, fake.long = work(), {7: 1000}, False
    call.run()
    fake.began.clear()
    fake.long = True
    assert ended_by(call, fake, lambda: table.before.update({7: 0xFFFF_FFFF}))


def test_run__ends_with_its_time(calls: Calls) -> None:
    """The deadline is the run's, too."""
    call, fake = made(calls, FakeBackend())
    calls.work = work(deadline_ns=time.monotonic_ns() + 50_000_000)
    assert ended_by(call, fake, lambda: None)


def test_run__for_nobody_does_not_begin(calls: Calls, table: Table) -> None:
    """Neither a call nor an executable's own run; what the stage does for itself always runs."""
    backend = FakeBackend()
    call, fake = made(calls, backend)
    calls.work, table.before, fake.long = work(working=1), {7: 2}, False
    watched = calls.through(model(backend)).load("g", Budget())
    for run in (call.run, lambda: watched.run({})):
        with pytest.raises(RunCancelled, match="nobody waits"):
            run()
    assert (fake.began.is_set(), calls.ended) == (False, 0)
    calls.work = None
    call.run()
    assert watched.run({}) == {"y": 3}


def test_run__cancelled_as_it_ends(calls: Calls, table: Table) -> None:
    """Whatever meets whatever, the next run of the call is not ended for the last one."""
    call, fake = made(calls, FakeBackend())
    fake.long = False
    for turn in range(300):
        calls.work = work(working=turn)
        threading.Thread(target=lambda turn=turn: table.before.update({7: turn + 1})).start()
        with contextlib.suppress(RunCancelled):
            call.run()
        assert not fake.stopped.is_set()


def test_through__what_can_do_neither_stays_as_it_is(calls: Calls) -> None:
    """Nothing stands between a stage and such a backend."""
    one = model(FakeBackend(cancels=False))
    assert calls.through(one) is one
    assert not calls.doubled


def test_through__the_backend_is_still_itself(calls: Calls) -> None:
    """Whoever asks it for more finds it."""
    watched: Any = calls.through(model(FakeBackend()))._backend
    assert watched.note == "its own"


def test_urgency__two_executables_where_it_counts(calls: Calls) -> None:
    """Each graph once for usual and more urgent work, once for the rest; both end together."""
    backend = FakeBackend(priorities=2)
    watched = calls.through(model(backend)).load("g", Budget(threads=2, urgency=3))
    assert [one.budget for one in backend.loaded] == [Budget(threads=2, urgency=3), Budget(threads=2, urgency=PATIENT)]
    assert calls.doubled
    found = []
    for urgency in (0, 3, 4, 7):
        calls.work = work(urgency=urgency)
        found.append(watched.run({})["y"])
    assert found == [3, 3, PATIENT, PATIENT]
    calls.work = None
    with calls.patiently():
        assert watched.run({})["y"] == PATIENT  # how the second one is warmed
    assert watched.run({})["y"] == 3
    watched.close()
    assert backend.log == [(3, "closed"), (PATIENT, "closed")]


def test_urgency__a_call_goes_where_it_belongs_with_its_memory(calls: Calls) -> None:
    """What was bound is bound there, too."""
    backend = FakeBackend(priorities=3)
    call = calls.through(model(backend)).load("g", Budget()).bind()
    call.set_input("x", "X")
    call.set_output("y", "Y")
    for urgency in (3, 6, 6, 0):
        calls.work = work(urgency=urgency)
        call.run()
    assert backend.log == [
        (3, "in", "x", "X"), (3, "out", "y", "Y"), (3, "ran"),
        (7, "in", "x", "X"), (7, "out", "y", "Y"), (7, "ran"), (7, "ran"),
        (3, "in", "x", "X"), (3, "out", "y", "Y"), (3, "ran"),
    ]  # fmt: skip
    assert call.output("y") == 3


def test_urgency__a_row_of_linked_runs_stays_together(calls: Calls) -> None:
    """Its first run's urgency is the row's: what one run hands to the next is in one place only."""
    backend = FakeBackend(priorities=2)
    call = calls.through(model(backend)).load("g", Budget()).bind()
    call.link("out", "in")
    calls.work = work(urgency=7)
    call.run()
    calls.work = work(urgency=0)
    call.run()
    ran = [row for row in backend.log if row[1] != "link"]
    assert ran == [(7, "ran"), (7, "ran")]
    assert (7, "link", "out", "in") in backend.log


def test_urgency__a_new_row_goes_where_it_belongs(calls: Calls) -> None:
    """When everything that one run hands to the next was given anew; not before."""
    backend = FakeBackend(priorities=2)
    call = calls.through(model(backend)).load("g", Budget()).bind()
    for name in "ab":
        call.set_input(name, "first")
        call.link(name.upper(), name)
    for urgency, renewed in ((7, ""), (0, ""), (0, "a"), (0, "ab"), (0, "")):
        calls.work = work(urgency=urgency)
        for name in renewed:
            call.set_input(name, "anew")
        call.run()
    assert [row[0] for row in backend.log if row[1] == "ran"] == [7, 7, 7, 3, 3]
    assert backend.log.count((3, "in", "b", "anew")) == 1


def test_run__of_the_cpu_ends_within_the_graph(calls: Calls, table: Table) -> None:
    """The real thing: onnxruntime stops at the next operator, and the same call is right again afterwards."""
    from dpfedge_cpu import CpuBackend

    from dpfedge.testing.loading import lowered, view
    from dpfedge.testing.models import chain, rows

    backend = CpuBackend()
    device = backend.devices(Path("/"))[0]
    shown = view(backend, lowered(backend, device, chain(96, 256, 256)), "chain")
    watched = calls.through(BoundModel("m", "toy", {}, device, SimpleNamespace(), backend, {}, {}))  # type: ignore[arg-type]
    call = watched._backend.load(shown, device, Budget()).bind()
    x, y = rows(256, 256), np.zeros((256, 256), np.float32)
    call.set_input("x", x)
    call.set_output("y", y)
    call.run()
    wanted = y.copy()
    for delay in np.linspace(0.001, 0.02, 40):
        y[...] = np.nan
        table.before.clear()
        calls.work = work(working=1)
        timer = threading.Timer(delay, lambda: table.before.update({7: 2}))
        timer.start()
        try:
            call.run()
        except RunCancelled:
            if calls.ended:
                break
        finally:
            timer.join()
    assert calls.ended
    assert np.isnan(y).all()
    calls.work = None
    call.run()
    assert np.array_equal(y, wanted)


def test_step__of_a_request_that_was_closed_ends_at_once(rig: Any, toy: Any) -> None:
    """The stage says nothing about it, and nobody is told of a failure; the next request is served."""
    calls = Calls(rig.arena.requests.cancelled)
    call, fake = made(calls, FakeBackend())
    turns: list[int] = []

    def life(io: RequestIO) -> Steps:
        turns.append(io.key)
        call.run()
        yield from io.map("sink", Kind.DONE, {}, turn=0, last=True)

    runner = StageRunner(toy("llm", life), "llm", rig.wiring("llm"), rig.arena, 1, calls=calls)
    key = rig.arena.requests.open()
    rig.start("llm", key)

    def close() -> None:
        assert fake.began.wait(LONG_S)
        rig.arena.requests.close(key)
        rig.arena.requests.cancel(key)

    thread = threading.Thread(target=close)
    thread.start()
    while not runner.turn_over():
        pass
    thread.join()
    assert (rig.got("llm.sink"), calls.ended, calls.work) == ([], 1, None)
    fake.long = False
    second = rig.arena.requests.open()
    rig.start("llm", second)
    while not runner.turn_over():
        pass
    assert [row[0] for row in rig.got("llm.sink")] == [Kind.DONE]
    assert turns == [key, second]


def test_step__whose_time_is_over_fails_with_the_deadline(rig: Any, toy: Any) -> None:
    """Not with the run that was ended for it."""
    calls = Calls(rig.arena.requests.cancelled)
    call, _ = made(calls, FakeBackend())

    def life(io: RequestIO) -> Steps:
        call.run()
        yield from io.map("sink", Kind.DONE, {}, turn=0, last=True)

    runner = StageRunner(toy("llm", life), "llm", rig.wiring("llm"), rig.arena, 1, calls=calls)
    key = rig.arena.requests.open()
    rig.start("llm", key, deadline_ns=time.monotonic_ns() + 50_000_000)
    while not runner.turn_over():
        pass
    (kind, _, data), *_ = rig.got("llm.sink")
    assert (kind, data["type"]) == (Kind.FAILED, "DeadlineExceeded")


@pytest.mark.parametrize("keeps", [True, False])
def test_through__links_stay_where_they_do(calls: Calls, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watched executable says of its device's memory what its own says."""
    monkeypatch.setattr(FakeExecutable, "keeps_links", keeps, raising=False)
    assert keeps_links(calls.through(model(FakeBackend())).load("g", Budget())) is keeps


def test_fifo__who_ends_runs_goes_before_the_stage(calls: Calls) -> None:
    """On the stage's own core it would otherwise never get to see that nobody waits."""
    assert calls.be_fifo(10) is None  # nobody ends anything yet
    made(calls, FakeBackend())
    if (refused := calls.be_fifo(10)) is not None:
        pytest.skip(refused)
    assert calls._watcher is not None
    task = calls._watcher.native_id
    assert task is not None
    assert os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    assert os.sched_getparam(task).sched_priority == 11
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    assert calls.be_fifo(99) is None
    assert os.sched_getparam(task).sched_priority == 99
    os.sched_setscheduler(task, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
