# SPDX-License-Identifier: Apache-2.0
"""Several stages in one process, each on its own thread, and stages with a real-time priority."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_stage import Start, Toy, answer, code_of

from dpfedge.errors import ModelError
from dpfedge.pipeline import priority, stage_process
from dpfedge.pipeline.wire import receive_message
from dpfedge.stage.api import Kind, RequestIO, Steps, Wait


@pytest.fixture
def allowed_fifo() -> None:
    """This process may be real-time."""
    before = os.sched_getscheduler(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except PermissionError:
        pytest.skip("needs CAP_SYS_NICE or RLIMIT_RTPRIO")
    os.sched_setscheduler(0, before | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    os.sched_setscheduler(0, before, os.sched_param(0))


# --- several stages ---


def test_stages__of_one_process_serve_side_by_side(rig: Any, start: Start) -> None:
    """Each on a thread of its own, over its own links; SIGTERM ends all of them."""
    pid, channel = start(stages=("decoder", "llm", "voice"))
    ready = {receive_message(channel)[0]["ready"] for _ in range(3)}
    names = {Path(f"/proc/{pid}/task/{task}/comm").read_text().strip() for task in os.listdir(f"/proc/{pid}/task")}
    found = {}
    for stage in ("voice", "llm", "decoder"):
        key = rig.arena.requests.open()
        rig.start(stage, key)
        found[stage] = answer(rig, stage)
    os.kill(pid, signal.SIGTERM)

    assert ready == {"decoder", "llm", "voice"}
    assert names >= {"dpf-decoder", "dpf-llm", "dpf-voice"}
    assert found == {name: [(Kind.DONE, 1, {})] for name in ("voice", "llm", "decoder")}
    assert code_of(pid) == 0


def test_stages__of_one_process_have_their_own_cores_and_niceness(start: Start) -> None:
    """What one takes is not taken from another."""
    core = min(os.sched_getaffinity(0))
    _, channel = start(stages=("decoder", "llm"), cores=[core], nice=2)
    facts = [receive_message(channel)[0]["facts"] for _ in range(2)]

    assert [(one["cores"], one["nice"]) for one in facts] == [([core], os.nice(0) + 2)] * 2


def test_stages__of_one_process_end_with_the_one_that_cannot_load(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which one that was is said."""

    class Second(Toy):
        def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise ModelError("bad model", where="here")
            super().__init__(model, config, budget)

    pid, channel = start(life=Second, stages=("decoder", "llm"))
    messages = []
    while message := receive_message(channel)[0]:
        messages.append(message)

    assert code_of(pid) == 1
    assert [one["stage"] for one in messages if "error" in one] == ["llm"]


def test_stages__of_one_process_end_with_the_one_that_breaks(
    rig: Any, start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A bug in a thread is the end of the process, as everywhere: nothing serves on beside it."""

    class Breaks(Toy):
        def request(self, io: RequestIO) -> Steps:
            raise ZeroDivisionError
            yield

    pid, channel = start(life=Breaks, stages=("decoder", "llm"))
    for _ in range(2):
        receive_message(channel)
    rig.start("llm", rig.arena.requests.open())

    assert code_of(pid) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_stages__told_to_end_while_one_still_loads(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is served yet: it ends at once."""

    class Slow(Toy):
        def warm(self) -> None:
            if threading.current_thread() is not threading.main_thread():
                time.sleep(60)

    pid, channel = start(life=Slow, stages=("decoder", "llm"))
    assert receive_message(channel)[0]["ready"] == "decoder"
    os.kill(pid, signal.SIGTERM)

    assert code_of(pid) == 0


def test_stages__whose_threads_cannot_be_started_end_with_a_traceback(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No process of half of them."""

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    pid, _ = start(stages=("decoder", "llm"))

    assert code_of(pid) == 1
    assert "can't start new thread" in capfd.readouterr().err


# --- what it reports ---


def test_report__never_waits_and_counts_what_is_lost() -> None:
    """A supervisor that reads nothing does not stop a stage."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        unit = stage_process._Unit([], None, -1, ours)  # type: ignore[arg-type]
        for count in range(5000):
            unit._report("llm", {"what": "x", "count": count})
        events = []
        while True:
            events.append(receive_message(theirs)[0]["event"])
            if len(events) == 1:
                unit._report("llm", {"what": "last"})
            if events[-1]["what"] == "last":
                break

    assert [one["count"] for one in events[:-1]] == list(range(len(events) - 1))
    assert events[-1]["lost"] == 5000 - (len(events) - 1)


# --- real-time priority ---


def test_fifo__is_of_the_stages_own_thread_alone(
    start: Start, allowed_fifo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of threads made while it loads, nor of those made later."""

    class Threads(Toy):
        def __init__(self, model: Any, config: Mapping[str, Any], budget: Any) -> None:
            super().__init__(model, config, budget)
            threading.Thread(target=signal.pause, daemon=True).start()

        def facts(self) -> Mapping[str, Any]:
            threading.Thread(target=signal.pause, daemon=True).start()
            mine = threading.get_native_id()
            others = [int(task) for task in os.listdir("/proc/self/task") if int(task) != mine]
            policies = [os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK for task in others]
            return {"mine": os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, "others": policies}

    _, channel = start(life=Threads, fifo=10)
    message, _ = receive_message(channel)

    assert message["refused"] == []
    assert message["facts"] == {"mine": os.SCHED_FIFO, "others": [os.SCHED_OTHER] * 2}


def test_fifo__who_watches_the_steps_goes_before_the_stage(start: Start, allowed_fifo: None) -> None:
    """Or a stage that hangs on the one core that both have would not be seen."""

    class Priorities(Toy):
        def facts(self) -> Mapping[str, Any]:
            tasks = [int(task) for task in os.listdir("/proc/self/task")]
            fifo = [task for task in tasks if os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO]
            return {"fifo": sorted(os.sched_getparam(task).sched_priority for task in fifo)}

    _, channel = start(life=Priorities, fifo=10, hang_ns=60_000_000_000)
    message, _ = receive_message(channel)

    assert (message["refused"], message["facts"]) == ([], {"fifo": [10, 11]})


def test_fifo__is_given_up_by_a_stage_that_computes_too_long(
    rig: Any, start: Start, allowed_fifo: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It goes on at an ordinary priority, and says so; a machine with one core is not taken from the others."""

    class Busy(Toy):
        def request(self, io: RequestIO) -> Steps:
            while os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO:
                yield Wait.STEP
            yield from io.map("sink", Kind.DONE, {}, turn=1, last=True)

    monkeypatch.setattr(priority, "COMPUTE_MAX_S", 0.05)
    pid, channel = start(life=Busy, fifo=10)
    receive_message(channel)
    rig.start("llm", rig.arena.requests.open())
    event = receive_message(channel)[0]

    assert event == {"event": {"what": "fifo given up"}, "stage": "llm"}
    assert answer(rig, "llm") == [(Kind.DONE, 1, {})]
    assert "stage llm: fifo: it computed too long" in capfd.readouterr().err
    os.kill(pid, signal.SIGTERM)
    assert code_of(pid) == 0


def test_fifo__stage_that_hangs_in_a_library_is_killed(
    rig: Any, start: Start, allowed_fifo: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the kernel, without anybody else having to run; what follows is as after any other death."""

    class Stuck(Toy):
        def request(self, io: RequestIO) -> Steps:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXCPU])
            while True:
                hash("x")
            yield

    monkeypatch.setattr(priority, "COMPUTE_MAX_S", 0.05)
    monkeypatch.setattr(priority, "KILL_S", 0.1)
    pid, channel = start(life=Stuck, fifo=10)
    receive_message(channel)
    rig.start("llm", rig.arena.requests.open())

    assert code_of(pid) == -signal.SIGKILL


def test_fifo__that_is_refused_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """On stderr and to the supervisor; the stage serves."""

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    _, channel = start(fifo=50)
    message, _ = receive_message(channel)

    line = "fifo 50 needs CAP_SYS_NICE or RLIMIT_RTPRIO; it runs at an ordinary priority"
    assert (message["ready"], message["refused"]) == ("llm", [line])
    assert f"stage llm: {line}" in capfd.readouterr().err
