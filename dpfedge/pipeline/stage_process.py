# SPDX-License-Identifier: Apache-2.0
"""The life of one process of stages after the fork: load, warm, say ready, serve, exit; it never returns to its parent.

Usually there is one stage, on the main thread. Where a board puts several into one process, the first is there and each
other one has a thread of its own, its own cores, priority and ports; a stage that fails or breaks takes all along.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from dpfedge.backend.api import Budget
from dpfedge.binding import BoundModel, Chosen
from dpfedge.errors import DpfError, StageError
from dpfedge.link import Arena
from dpfedge.pipeline.calls import Calls
from dpfedge.pipeline.early import load_early
from dpfedge.pipeline.priority import be_fifo, be_fifo_before, be_nice, give_up_fifo
from dpfedge.pipeline.runner import StageRunner
from dpfedge.pipeline.stage_record import StageRecord
from dpfedge.pipeline.watchdog import watch
from dpfedge.pipeline.wire import send_message
from dpfedge.records import dataclass
from dpfedge.stage.api import Adjusts, Stage
from dpfedge.stage.each import Each
from dpfedge.stage.failure import describe, raised
from dpfedge.stage.kinds import find_kind

if TYPE_CHECKING:
    from dpfedge.stage.join import Synced

__all__ = ["Served", "run_unit", "stay_a_child"]

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
_importing = threading.Lock()  # two stages of one process may have their classes in one file


@dataclass(frozen=True, slots=True)
class Served:
    """What every stage process of a pipeline gets from its parent."""

    chosen: Chosen | None
    """The models of its package; None when it has none."""
    folder: Path | None = None
    """Where the stage classes of a pipeline file are; None for a package, which has none of its own."""


def run_unit(
    command: Mapping[str, Any], served: Served, arena_fd: int, channel: socket.socket, parent: int
) -> NoReturn:
    """Be the stages that `command` names, until SIGTERM or the death of process `parent`; ends the process."""
    try:
        stay_a_child(parent)
        _Unit(command["stages"], served, arena_fd, channel).run()
    finally:
        traceback.print_exc()  # a thread that cannot be started, a bug of ours: never its parent's code, never silent
        _end(1)


class _Unit:
    """The stages of this process."""

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], served: Served, arena_fd: int, channel: socket.socket
    ) -> None:
        self._rows, self._served, self._arena_fd, self._channel = rows, served, arena_fd, channel
        self._runners: list[StageRunner] = []
        self._names: dict[int, str] = {}
        self._lost = 0

    def run(self) -> None:
        """Serve until every stage was told to end; ends the process."""
        if any(row["fifo"] for row in self._rows):
            give_up_fifo(self._fifo_given_up)
        first, *others = self._rows
        threads = [threading.Thread(target=self._live, args=(row,)) for row in others]
        for thread in threads:
            thread.start()
        self._live(first)
        for thread in threads:
            thread.join()
        _end(0)

    def _live(self, row: Mapping[str, Any]) -> None:
        """One stage on this thread until it is told to end; an error ends the process."""
        record = StageRecord.of_map(row["stage"])
        name, code = record.name, 1
        try:
            self._serve(record, row)
            code = -1
        except DpfError as error:
            print(f"dpfedge: stage {name}: {error}", file=sys.stderr, flush=True)
            self._tell(name, error, str(error))
        except BrokenPipeError:
            code = 0  # the supervisor is gone; nobody is left to be told
        finally:
            if (bug := sys.exc_info()[1]) is not None:
                traceback.print_exc()
                found, remedy = raised(bug), "the traceback is on stderr"
                self._tell(name, StageError("its code raised an exception", found=found, remedy=remedy), found)
            if code >= 0:
                _end(code)

    def _tell(self, name: str, error: DpfError, found: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            send_message(self._channel, {"error": describe(error, name), "stage": name})
            send_message(self._channel, {"event": {"what": "raised", "found": found}, "stage": name})

    def _serve(self, record: StageRecord, row: Mapping[str, Any]) -> None:
        name, started = record.name, time.monotonic_ns()
        refused = [_take_place(name, row)]
        calls = Calls()
        with _apart(row["load_cores"]):
            stage = _build(record, row, self._served, calls)
            loaded = time.monotonic_ns()
            stage.warm()
            if calls.doubled:
                with calls.patiently():
                    stage.warm()
        warmed = time.monotonic_ns()
        arena = Arena.attach(self._arena_fd)
        calls.cancelled = arena.requests.cancelled
        runner = StageRunner(
            stage, name, record.wiring, arena, row["owner"],
            spin_ns=row["spin_ns"], budget_ns=record.budget_ns, report=partial(self._report, name), calls=calls,
        )  # fmt: skip
        self._runners.append(runner)
        watcher = self._watch(name, runner, record.hang_ns) if record.hang_ns else 0
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._stop)
        gc.freeze()  # what start-up made lives for ever; collections during a turn stay short
        gc.enable()  # the zygote had none
        self._names[threading.get_native_id()] = name
        if row["fifo"]:
            refused.append(be_fifo(row["fifo"]) or calls.be_fifo(row["fifo"]) or be_fifo_before(row["fifo"], watcher))
        asked = [line for line in refused if line]
        for line in asked:
            print(f"dpfedge: stage {name}: {line}", file=sys.stderr, flush=True)
        times = {"load_ms": (loaded - started) / 1e6, "warm_ms": (warmed - loaded) / 1e6}
        send_message(self._channel, {"ready": name, "facts": dict(stage.facts()), "refused": asked, **times})
        runner.run()

    def _watch(self, name: str, runner: StageRunner, hang_ns: int) -> int:
        """The thread id of who ends the process when a step hangs."""
        watched = partial(self._hung, name)
        watcher = threading.Thread(target=watch, args=(runner, hang_ns, watched), name="dpf-watch", daemon=True)
        watcher.start()
        return watcher.native_id or 0

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        if len(self._runners) < len(self._rows):
            _end(0)  # before all are ready nobody is served
        for runner in self._runners:
            runner.stop()

    def _hung(self, name: str, step_ns: int) -> NoReturn:
        """Nobody can end a step from outside; the process ends with it, and the next one serves."""
        error = StageError(
            "a step hung", found=f"{step_ns / 1e9:.1f} s", remedy="raise budgets.hang, or mend the stage"
        )
        print(f"dpfedge: stage {name}: {error}", file=sys.stderr, flush=True)
        self._tell(name, error, str(error))
        _end(1)

    def _report(self, name: str, event: Mapping[str, Any]) -> None:
        # it never waits: what the supervisor has no room for is counted as `lost` of the next event
        lost = {"lost": self._lost} if self._lost else {}
        try:
            send_message(self._channel, {"event": {**event, **lost}, "stage": name}, wait=False)
            self._lost = 0
        except BlockingIOError:
            self._lost += 1

    def _fifo_given_up(self, task: int) -> None:
        name = self._names.get(task)
        if name is None:  # who ends the runs of a stage that is told of, too
            return
        what = "it computed too long without a pause and goes on at an ordinary priority"
        print(f"dpfedge: stage {name}: fifo: {what}", file=sys.stderr, flush=True)
        self._report(name, {"what": "fifo given up"})


def _end(code: int) -> NoReturn:
    sys.stderr.flush()
    os._exit(code)


def stay_a_child(parent: int) -> None:
    """Be killed with the thread of process `parent` that made this process, also while this one is stopped."""
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent died before the request above took effect


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _take_place(name: str, row: Mapping[str, Any]) -> str | None:
    """This thread's name, cores and niceness; a line when the niceness is refused."""
    _libc().prctl(_PR_SET_NAME, f"dpf-{name}"[:15].encode(), 0, 0, 0)
    cores = set(row["cores"]) & os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    return be_nice(row["nice"]) if row["nice"] else None


@contextlib.contextmanager
def _apart(cores: Sequence[int]) -> Iterator[None]:
    """Stay on these cores inside; then every thread made meanwhile may go where this one could before."""
    before = os.sched_getaffinity(0)
    if cores:
        os.sched_setaffinity(0, cores)
    yield
    for task in os.listdir("/proc/self/task") if cores else ():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), before)


def _build(record: StageRecord, row: Mapping[str, Any], served: Served, calls: Calls) -> Stage:
    budget = Budget(threads=row["threads"], cores=tuple(row["cores"]))
    model = _model(record.name, row["model"] or record.model, served.chosen, budget, calls)
    # each process imports its own stages only: the others' libraries would cost every process memory
    with _importing:
        made = find_kind(record.kind, where=f"stage {record.name}", folder=served.folder).load()
    settings = row["settings"]
    live = hasattr(made, "adjust")  # its own settings stay the pipeline's then, so that it can go back to them
    stage = made(model, record.config if live else {**record.config, **settings}, budget)
    if live and settings:
        cast(Adjusts, stage).adjust(settings)
    if isinstance(stage, Each):
        stage.name = record.name
    if record.sync is not None:
        from dpfedge.stage.join import Sync  # the only stages that need it

        cast("Synced", stage).sync = Sync(**record.sync)
    return stage


def _model(stage: str, name: str, chosen: Chosen | None, budget: Budget, calls: Calls) -> BoundModel | None:
    if not name:
        return None
    if chosen is None:
        remedy = "name the package that has it"
        raise StageError("the pipeline has no package", stage=stage, found=f"model {name}", remedy=remedy)
    return load_early(chosen.model(name), budget, calls)
