# SPDX-License-Identifier: Apache-2.0
"""Real processes of toy stages: forked with changes to their rows, asked for one answer, waited for."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from dpfedge.errors import ModelError
from dpfedge.pipeline import stage_process
from dpfedge.pipeline.stage_process import Served
from dpfedge.pipeline.stage_record import StageRecord
from dpfedge.stage.api import Kind, RequestIO, Steps
from dpfedge.stage.kinds import StageKind
from dpfedge.stage.ports import Ports

Start = Callable[..., tuple[int, socket.socket]]
ROW = {
    "stage": "llm", "owner": 1, "threads": 1, "cores": [], "nice": 0, "fifo": 0, "spin_ns": 0, "load_cores": [],
    "model": None, "settings": {},
}  # fmt: skip


class Toy:
    """Answers every request at once."""

    name = "llm"

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
        if config.get("bad"):
            raise ModelError("bad model", where="here")
        if config.get("bug"):
            raise ZeroDivisionError
        self._config, self._budget = config, budget

    def warm(self) -> None:
        if self._config.get("slow"):
            signal.pause()

    def facts(self) -> Mapping[str, Any]:
        cores = sorted(os.sched_getaffinity(0))
        return {"threads": self._budget.threads, "cores": cores, "nice": os.nice(0), "policy": os.sched_getscheduler(0)}

    def request(self, io: RequestIO) -> Steps:
        yield from io.map("sink", Kind.DONE, {}, turn=1, last=True)


class Bound:
    def model(self, name: str) -> str:
        return name


def record(rig: Any, name: str, config: Any = None, hang_ns: int = 0) -> StageRecord:
    """A toy of that name."""
    return StageRecord(name, "toy", "m", config or {}, rig.wiring(name), hang_ns=hang_ns)


@contextmanager
def starting(rig: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Fork a process of stages with changes to their rows; its pid and this side of its channel."""
    monkeypatch.setattr(stage_process, "load_early", lambda model, budget, calls: model)
    children: list[tuple[int, socket.socket]] = []

    def begin(
        parent: int | None = None, alone: bool = False, config: Any = None, stages: tuple[str, ...] = ("llm",),
        life: Any = Toy, hang_ns: int = 0, **changes: Any,
    ) -> tuple[int, socket.socket]:  # fmt: skip
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if alone:
            ours.close()
        here = os.getpid() if parent is None else parent
        told = [record(rig, name, config, hang_ns).as_map() for name in stages]
        rows = [{**ROW, **changes, "stage": one, "owner": owner} for owner, one in enumerate(told, 1)]
        kind = StageKind("toy", lambda config, model: Ports(), lambda: life, lambda: None)
        monkeypatch.setattr(stage_process, "find_kind", lambda name, **_: kind)
        served: Any = Served(Bound())  # type: ignore[arg-type]
        pid = os.fork()
        if pid == 0:
            ours.close()
            stage_process.run_unit({"unit": stages[0], "stages": rows}, served, rig.arena.fd, theirs, here)
        theirs.close()
        children.append((pid, ours))
        return pid, ours

    yield begin
    for pid, channel in children:
        channel.close()
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except (ProcessLookupError, ChildProcessError):
            continue


def answer(rig: Any, stage: str) -> list[Any]:
    """What a stage sends to the sink first."""
    bell, found = rig.arena.bell("sink"), []
    while not found:
        seen = bell.value()
        found = rig.got(f"{stage}.sink")
        if not found:
            bell.wait(seen, 10_000_000_000)
    return found


def code_of(pid: int) -> int:
    """The exit code, or minus the signal."""
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = poll.poll(30_000)
    os.close(fd)
    assert ended, "it does not end"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
