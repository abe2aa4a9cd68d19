# SPDX-License-Identifier: Apache-2.0
"""Real child processes behind a toy zygote: deaths at every moment, restarts, the circuit breaker, and every end."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StageError
from dpfedge.pipeline import supervisor as module
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.supervisor import Supervisor
from dpfedge.pipeline.wire import receive_message, send_message

NAMES = ("decoder", "llm")
SETUP = {"board": "host", "path": "x", "manifest": ""}


class Process:
    """The toy zygote's process, as `subprocess.Popen` shows it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        os.waitpid(self.pid, 0)


class ToyZygote:
    """Forks stages that say ready and then wait; `behaviour` maps a stage to what it does instead."""

    behaviour: dict[str, Callable[[socket.socket], None]]

    def __init__(self, behaviour: dict[str, Callable[[socket.socket], None]] | None = None) -> None:
        self.behaviour = behaviour or {}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.fork()
        if pid == 0:
            self.control.close()
            try:
                self._serve(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.process = Process(pid)

    def stop(self, grace_s: float = 2.0) -> None:
        self.control.close()
        if self.process.pid:
            os.kill(self.process.pid, signal.SIGKILL)
            os.waitpid(self.process.pid, 0)
            self.process.pid = 0

    def _serve(self, control: socket.socket) -> None:
        _die_with(os.getppid())
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if not receive_message(control)[0]:
            return
        if "zygote" in self.behaviour:
            self.behaviour["zygote"](control)
            return
        while (command := receive_message(control)) and command[0]:
            name, channel_fd = command[0]["stage"], command[1][0]
            pid = os.fork()
            if pid == 0:
                control.close()
                _die_with(os.getppid())
                self.behaviour.get(name, _ready)(socket.socket(fileno=channel_fd))
                os._exit(0)
            os.close(channel_fd)
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                send_message(control, {"stage": name, "pid": 0, "reason": "it ended at once"})
                continue
            send_message(control, {"stage": name, "pid": pid}, [pidfd])
            os.close(pidfd)


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _ready(channel: socket.socket) -> None:
    send_message(channel, {"ready": "x", "facts": {"pid": os.getpid()}, "load_ms": 1.0, "warm_ms": 2.0})
    signal.pause()


def _deaf(channel: socket.socket) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send_message(channel, {"ready": "x", "facts": {}, "load_ms": 1.0, "warm_ms": 2.0})
    while True:
        time.sleep(10)


def _hangs(channel: socket.socket) -> None:
    signal.pause()


def _refuses(channel: socket.socket) -> None:
    send_message(channel, {"error": {"what": "bad model", "found": "x", "allowed": None, "remedy": "fix it"}})


def _crashes(channel: socket.socket) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _cannot_bind(control: socket.socket) -> None:
    send_message(control, {"error": {"what": "the file was replaced", "found": None}})


class Watch:
    """Notes what it is told, and wakes who waits for it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def _note(self, what: str, name: str) -> None:
        with self._changed:
            self.told.append((what, name))
            self._changed.notify_all()

    def stage_ready(self, name: str) -> None:
        self._note("ready", name)

    def stage_died(self, name: str) -> None:
        self._note("died", name)

    def wait(self, what: str, name: str, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.told.count((what, name)) >= count, 30), self.told


class Pipeline:
    """A supervisor over toy stages."""

    def __init__(self, arena: Any, behaviour: dict[str, Any] | None = None) -> None:
        self.watch = Watch()
        graph = Graph.from_manifest({"stages": {name: {"model": "m"} for name in NAMES}}, "x")
        self.one = Supervisor(ToyZygote(behaviour), graph, arena, self.watch)  # type: ignore[arg-type]
        fd = os.open("/dev/null", os.O_RDONLY)
        self.one.start(fd, SETUP, {})
        os.close(fd)

    def kill(self, name: str) -> None:
        pid = self.one.stages[name].pid
        assert pid > 1  # 0 would be this test's own process group
        os.kill(pid, signal.SIGKILL)

    def state(self, name: str = "llm") -> str:
        return self.one.stages[name].state


Make = Callable[..., Pipeline]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    before = (os.listdir("/proc/self/fd"), set(threading.enumerate()))
    yield
    assert len(os.listdir("/proc/self/fd")) == len(before[0])
    assert set(threading.enumerate()) <= before[1]
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.fixture
def make(rig: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Make pipelines that are stopped at the end; restarts are at once."""
    monkeypatch.setattr(module, "Zygote", ToyZygote)
    monkeypatch.setattr(module, "_BACK_OFF_S", (0.0,))
    made: list[Pipeline] = []

    def _make(behaviour: dict[str, Any] | None = None) -> Pipeline:
        made.append(Pipeline(rig.arena, behaviour))
        return made[-1]

    yield _make
    for one in made:
        one.one.stop(0.2)


def gone(pid: int) -> bool:
    """Whether the process ends; a watchdog, not a measure."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return True


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
    pipeline = make({"llm": _refuses})

    with pytest.raises(StageError, match="stage llm: bad model; found x; fix it"):
        pipeline.one.wait_ready()
    assert pipeline.state() == "failed"


@pytest.mark.parametrize("life", [_crashes, lambda channel: None])
def test_first_start__that_crashes_is_final(make: Make, life: Any) -> None:
    """Without last words there is still an error that names the stage."""
    pipeline = make({"llm": life})

    with pytest.raises(StageError, match="stage llm: the process"):
        pipeline.one.wait_ready()


def test_circuit_breaker__opens_and_closes_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many deaths: down, told to who asks, and tried again when the window has passed."""
    monkeypatch.setattr(module, "_BACK_OFF_S", (0.0, 0.0))
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
    pipeline = make({"llm": _hangs, "decoder": _hangs})
    os.kill(pipeline.one.zygote_pid, signal.SIGKILL)

    with pytest.raises(StageError):
        pipeline.one.wait_ready()


def test_zygote__that_cannot_bind_says_why(make: Make) -> None:
    """The package was replaced between two openings."""
    pipeline = make({"zygote": _cannot_bind})

    with pytest.raises(StageError, match="the file was replaced"):
        pipeline.one.wait_ready()


def test_zygote__that_cannot_be_started_is_tried_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory now is no memory for ever."""
    tries: list[int] = []

    def sometimes() -> ToyZygote:
        tries.append(1)
        if len(tries) == 1:
            raise OSError(11, "Resource temporarily unavailable")
        return ToyZygote()

    monkeypatch.setattr(module, "Zygote", sometimes)
    pipeline = make()
    pipeline.one.wait_ready()
    os.kill(pipeline.one.zygote_pid, signal.SIGKILL)
    pipeline.watch.wait("ready", "llm", 2)

    assert len(tries) == 2


def test_stage__that_hangs_at_its_start_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded wait for everybody."""
    monkeypatch.setattr(module, "STAGE_START_MAX_S", 0.2)
    pipeline = make({"llm": _hangs})
    pipeline.watch.wait("died", "llm", 1)

    assert pipeline.state() == "failed"


def test_wait_ready__gives_up(make: Make) -> None:
    """It names a stage that is late."""
    pipeline = make({"llm": _hangs})

    with pytest.raises(StageError, match="stage llm: not ready after 0 s"):
        pipeline.one.wait_ready(0.3)


def test_wait_ready__ends_with_stop(make: Make) -> None:
    """Ctrl-C while it starts."""
    pipeline = make({"llm": _hangs})
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
    pipeline = make({"llm": _deaf})
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
    for state in pipeline.one.stages.values():
        state.deaths = module.deque(maxlen=1000)
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
