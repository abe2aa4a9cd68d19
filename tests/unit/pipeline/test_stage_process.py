# SPDX-License-Identifier: Apache-2.0
"""One stage process from the fork to its end, with a tiny stage."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from dpfedge.errors import ModelError
from dpfedge.pipeline import stage_process
from dpfedge.pipeline.wire import receive_message
from dpfedge.stage.api import Kind, RequestIO, Steps

Start = Callable[..., tuple[int, socket.socket]]
COMMAND = {
    "stage": "llm", "model": "m", "config": {}, "owner": 1, "threads": 1, "cores": [], "nice": 0, "spin_ns": 0,
    "load_cores": [],
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
        return {"threads": self._budget.threads, "cores": sorted(os.sched_getaffinity(0)), "nice": os.nice(0)}

    def request(self, io: RequestIO) -> Steps:
        yield from io.map("sink", Kind.DONE, {}, turn=1, last=True)


class Bound:
    def model(self, name: str) -> str:
        return name


@pytest.fixture
def start(rig: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Fork a stage with changes to its command; its pid and this side of its channel."""
    monkeypatch.setattr(stage_process, "_factory", lambda name: Toy)
    monkeypatch.setattr(stage_process, "load_early", lambda model, budget: model)
    children: list[tuple[int, socket.socket]] = []

    def begin(parent: int | None = None, alone: bool = False, **changes: Any) -> tuple[int, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if alone:
            ours.close()
        here = os.getpid() if parent is None else parent
        pid = os.fork()
        if pid == 0:
            ours.close()
            stage_process.run_stage({**COMMAND, **changes}, Bound(), rig.arena.fd, theirs, here)  # type: ignore[arg-type]
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


def code_of(pid: int) -> int:
    """The exit code, or minus the signal."""
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = poll.poll(30_000)
    os.close(fd)
    assert ended, "it does not end"
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_stage__serves_until_it_is_told_to_end(rig: Any, start: Start) -> None:
    """Ready with its facts and times, an answer, and exit code 0 after SIGTERM."""
    pid, channel = start()
    message, _ = receive_message(channel)
    key = rig.arena.requests.open()
    rig.start("llm", key)
    bell, found = rig.arena.bell("sink"), []
    while not found:
        seen = bell.value()
        found = rig.got("llm.sink")
        if not found:
            bell.wait(seen, 10_000_000_000)
    os.kill(pid, signal.SIGTERM)

    assert message["ready"] == "llm"
    assert message["load_ms"] >= 0
    assert message["warm_ms"] >= 0
    assert found == [(Kind.DONE, 1, {})]
    assert code_of(pid) == 0


def test_stage__takes_its_place(start: Start) -> None:
    """Cores this process may use, threads and niceness."""
    core = min(os.sched_getaffinity(0))
    _, channel = start(threads=2, cores=[core, 9999], nice=3)
    message, _ = receive_message(channel)

    assert message["facts"] == {"threads": 2, "cores": [core], "nice": os.nice(0) + 3}


def test_start__apart_from_others_only_while_it_loads(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading stays on the cores it was given; every thread made there may go everywhere afterwards."""
    everywhere = sorted(os.sched_getaffinity(0))
    seen: list[list[int]] = []

    class Loading(Toy):
        def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
            super().__init__(model, config, budget)
            seen.append(sorted(os.sched_getaffinity(0)))
            threading.Thread(target=signal.pause, daemon=True).start()

        def facts(self) -> Mapping[str, Any]:
            tasks = [sorted(os.sched_getaffinity(int(task))) for task in os.listdir("/proc/self/task")]
            return {"loading": seen[0], "tasks": tasks}

    monkeypatch.setattr(stage_process, "_factory", lambda name: Loading)
    _, channel = start(load_cores=everywhere[-1:])
    facts = receive_message(channel)[0]["facts"]
    assert facts["loading"] == everywhere[-1:]
    assert len(facts["tasks"]) >= 2
    assert all(cores == everywhere for cores in facts["tasks"])


def test_stage__that_cannot_load_says_why(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """On the channel and in the log."""
    pid, channel = start(config={"bad": 1})
    message, _ = receive_message(channel)

    assert code_of(pid) == 1
    assert (message["error"]["type"], message["error"]["what"]) == ("ModelError", "bad model")
    assert "stage llm: here: bad model" in capfd.readouterr().err


def test_stage__with_a_bug_ends_with_a_traceback(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """It never runs on in its parent's code."""
    pid, channel = start(config={"bug": 1})

    assert code_of(pid) == 1
    assert receive_message(channel) == ({}, [])
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_stage__whose_supervisor_is_gone_ends_quietly(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody is left to be told that it is ready."""
    pid, _ = start(alone=True)

    assert code_of(pid) == 0
    assert capfd.readouterr().err == ""


def test_stage__told_to_end_while_it_warms(start: Start) -> None:
    """No handler is there yet: the signal ends it."""
    pid, _ = start(config={"slow": 1})
    os.kill(pid, signal.SIGTERM)

    assert code_of(pid) == -signal.SIGTERM


def test_stage__whose_parent_died_before_it_could_ask_for_a_signal(start: Start) -> None:
    """It looks who its parent is."""
    pid, _ = start(parent=1)

    assert code_of(pid) == 1


def test_stage__without_the_right_to_be_urgent_serves(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A board may ask for what only root may give; the log says so."""

    def refuse(value: int) -> int:
        if value:
            raise PermissionError
        return 0

    monkeypatch.setattr(os, "nice", refuse)
    _, channel = start(nice=-5)
    message, _ = receive_message(channel)

    assert message["ready"] == "llm"
    assert "nice -5 needs CAP_SYS_NICE" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["decoder", "encoder", "llm", "voice"])
def test_factory__knows_every_stage(name: str) -> None:
    """By its name on the links."""
    assert stage_process._factory(name).name == name  # type: ignore[attr-defined]
