# SPDX-License-Identifier: Apache-2.0
"""Real child processes behind a toy zygote: deaths at every moment, restarts, the circuit breaker, and every end."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from made_supervisor import NAMES, Make, cannot_bind, crashes, deaf, ends, gone, hangs, refuses

from dpfedge.errors import StageError
from dpfedge.pipeline import unit as module

pytestmark = pytest.mark.usefixtures("nothing_left")


def test_stages__are_ready_with_their_facts(make: Make) -> None:
    """Every stage is a process of its own."""
    pipeline = make()
    pipeline.one.wait_ready()

    assert pipeline.one.ready()
    states = pipeline.one.stages.values()
    assert [state.facts["pid"] for state in states] == [state.pid for state in states]
    assert [(state.load_ms, state.warm_ms) for state in states] == [(1.0, 2.0)] * 2
    assert sorted(pipeline.watch.told) == [("ready", name) for name in sorted(NAMES)]


def test_killed_stage__comes_back_as_another_owner(make: Make, rig: Any) -> None:
    """Its loans and leases are taken back before anybody hears of its death."""
    pipeline = make()
    pipeline.one.wait_ready()
    state = pipeline.one.stages["llm"]
    owner, pid = state.owner, state.pid
    producer = rig.arena.producer("llm.sink", owner)
    loan = producer.loan(8)
    assert rig.held() == {"llm.sink": 1}
    pipeline.kill("llm")
    pipeline.watch.wait("ready", "llm", 2)

    assert rig.held() == {}
    assert (state.owner > owner, state.pid != pid, state.restarts) == (True, True, 1)
    assert pipeline.watch.told.index(("died", "llm")) < len(pipeline.watch.told) - 1
    assert pipeline.state("decoder") == "ready"
    del loan


def test_first_start__that_fails_is_final_and_says_why(make: Make) -> None:
    """What keeps a stage from its first start does not go away by itself."""
    pipeline = make({"llm": refuses})

    with pytest.raises(StageError, match="stage llm: bad model; found x; fix it"):
        pipeline.one.wait_ready()
    assert pipeline.state() == "failed"


@pytest.mark.parametrize("life", [crashes, ends])
def test_first_start__that_crashes_is_final(make: Make, life: Any) -> None:
    """Without last words there is still an error that names the stage."""
    pipeline = make({"llm": life})

    with pytest.raises(StageError, match="stage llm: the process"):
        pipeline.one.wait_ready()


def test_circuit_breaker__opens_and_closes_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many deaths: down, told to who asks, and tried again when the window has passed."""
    monkeypatch.setattr(module, "BACK_OFF_S", (0.0, 0.0))
    monkeypatch.setattr(module, "STAGE_RESTARTS_MAX", 3)
    monkeypatch.setattr(module, "STAGE_RESTARTS_WINDOW_S", 3)
    pipeline = make()
    pipeline.one.wait_ready()
    for count in (1, 2, 3):
        pipeline.watch.wait("ready", "llm", count)
        pipeline.kill("llm")
    pipeline.watch.wait("died", "llm", 3)
    assert pipeline.state() == "failed"

    pipeline.watch.wait("ready", "llm", 4)
    assert pipeline.state() == "ready"


def test_zygote__killed_takes_stages_along_and_all_come_back(make: Make) -> None:
    """A new one for the same package."""
    pipeline = make()
    pipeline.one.wait_ready()
    pids, zygote = [state.pid for state in pipeline.one.stages.values()], pipeline.one.zygote_pid
    os.kill(zygote, signal.SIGKILL)
    for name in NAMES:
        pipeline.watch.wait("ready", name, 2)

    assert all(gone(pid) for pid in pids)
    assert pipeline.one.zygote_pid != zygote
    assert pipeline.one.ready()


def test_zygote__killed_before_any_stage_served(make: Make) -> None:
    """Whoever waits hears of it."""
    pipeline = make({"llm": hangs, "decoder": hangs})
    os.kill(pipeline.one.zygote_pid, signal.SIGKILL)

    with pytest.raises(StageError):
        pipeline.one.wait_ready()


def test_zygote__that_cannot_bind_says_why(make: Make) -> None:
    """The package was replaced between two openings."""
    pipeline = make({"zygote": cannot_bind})

    with pytest.raises(StageError, match="the file was replaced"):
        pipeline.one.wait_ready()


def test_wait_ready__gives_up(make: Make) -> None:
    """It names a stage that is late."""
    pipeline = make({"llm": hangs})

    with pytest.raises(StageError, match="stage llm: not ready after 0 s"):
        pipeline.one.wait_ready(0.3)


def test_wait_ready__ends_with_stop(make: Make) -> None:
    """Ctrl-C while it starts."""
    pipeline = make({"llm": hangs})
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            pipeline.one.wait_ready()
        except StageError as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    pipeline.one.stop()
    thread.join(30)

    assert "stopped while it started" in str(errors[0])


def test_stop__ends_every_process_and_is_not_a_death(make: Make) -> None:
    """In an orderly way, once."""
    pipeline = make()
    pipeline.one.wait_ready()
    pids = [pipeline.one.zygote_pid, *(state.pid for state in pipeline.one.stages.values())]
    pipeline.one.stop()
    pipeline.one.stop()

    assert all(gone(pid) for pid in pids)
    assert ("died", "llm") not in pipeline.watch.told
    assert not pipeline.one.ready()


def test_stop__kills_who_does_not_listen(make: Make) -> None:
    """After the grace."""
    pipeline = make({"llm": deaf})
    pipeline.one.wait_ready()
    pid = pipeline.one.stages["llm"].pid
    pipeline.one.stop(0.1)

    assert gone(pid)


def test_stop__before_the_first_answer(make: Make) -> None:
    """Nothing that was asked for is left behind."""
    make().one.stop()


def test_fifty_kills__leave_nothing_behind(make: Make, rig: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Descriptors, loans and processes are as many as before."""
    monkeypatch.setattr(module, "STAGE_RESTARTS_MAX", 1000)
    pipeline = make()
    pipeline.one.wait_ready()
    before = len(os.listdir("/proc/self/fd"))
    for count in range(50):
        name = NAMES[count % 2]
        pipeline.kill(name)
        pipeline.watch.wait("ready", name, count // 2 + 2)

    assert len(os.listdir("/proc/self/fd")) == before
    assert rig.held() == {}
    assert [state.restarts for state in pipeline.one.stages.values()] == [25, 25]


def test_supervisor__sleeps_while_nothing_happens(make: Make) -> None:
    """No polling: its thread is not even woken."""
    pipeline = make()
    pipeline.one.wait_ready()
    thread = pipeline.one._thread.native_id

    def wakeups() -> int:
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    time.sleep(0.1)
    before = wakeups()
    time.sleep(0.5)
    assert wakeups() == before
