# SPDX-License-Identifier: Apache-2.0
"""A toy zygote with real child processes, a watch, and a supervisor over both."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dpfedge.pipeline.stage_record import StageRecord
from dpfedge.pipeline.supervisor import Supervisor
from dpfedge.pipeline.wire import receive_message, send_message

NAMES = ("decoder", "llm")
SETUP = {"folder": None, "chosen": {}, "path": "x", "manifest": ""}
Behaviour = Callable[[socket.socket, dict[str, Any]], None]


class Process:
    """The toy zygote's process, as `subprocess.Popen` shows it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        os.waitpid(self.pid, 0)


class ToyZygote:
    """Forks stages that say ready and then wait; `behaviour` maps a stage to what it does instead."""

    behaviour: dict[str, Behaviour]

    def __init__(self, behaviour: dict[str, Behaviour] | None = None) -> None:
        self.behaviour = behaviour or {}
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        here = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.control.close()
            try:
                self._serve(theirs, here)
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

    def _serve(self, control: socket.socket, parent: int) -> None:
        _die_with(parent)
        here = os.getpid()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        if not receive_message(control)[0]:
            return
        if "zygote" in self.behaviour:
            self.behaviour["zygote"](control, {})
            return
        while (command := receive_message(control)) and command[0]:
            if "forks nothing" in self.behaviour:
                continue
            unit, channel_fd = command[0]["unit"], command[1][0]
            pid = os.fork()
            if pid == 0:
                control.close()
                _die_with(here)
                self._live(command[0]["stages"], socket.socket(fileno=channel_fd))
                os._exit(0)
            os.close(channel_fd)
            if "tells late" in self.behaviour:
                time.sleep(0.1)
            try:
                pidfd = os.pidfd_open(pid)
            except ProcessLookupError:
                send_message(control, {"unit": unit, "pid": 0, "reason": "it ended at once"})
                continue
            send_message(control, {"unit": unit, "pid": pid}, [pidfd])
            os.close(pidfd)

    def _live(self, rows: list[dict[str, Any]], channel: socket.socket) -> None:
        for row in rows:
            self.behaviour.get(row["stage"]["name"], says_ready)(channel, row)
        signal.pause()


def _die_with(parent: int) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def says_ready(channel: socket.socket, row: dict[str, Any], **more: Any) -> None:
    facts = {"pid": os.getpid(), "model": row["model"], "settings": row["settings"]}
    told = {"ready": row["stage"]["name"], "facts": facts, "load_ms": 1.0, "warm_ms": 2.0, "refused": []}
    send_message(channel, {**told, **more})


def deaf(channel: socket.socket, row: dict[str, Any]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    says_ready(channel, row)
    while True:
        time.sleep(10)


def hangs(channel: socket.socket, row: dict[str, Any]) -> None:
    signal.pause()


def refuses(channel: socket.socket, row: dict[str, Any]) -> None:
    error = {"what": "bad model", "found": "x", "allowed": None, "remedy": "fix it"}
    send_message(channel, {"error": error, "stage": row["stage"]["name"]})
    os._exit(1)


def crashes(channel: socket.socket, row: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ends(channel: socket.socket, row: dict[str, Any]) -> None:
    os._exit(0)


def unless_small(life: Behaviour) -> Behaviour:
    """Ready, but as `life` says with the model called `small`."""
    return lambda channel, row: (life if row["model"] == "small" else says_ready)(channel, row)


def cannot_bind(control: socket.socket, row: dict[str, Any]) -> None:
    send_message(control, {"error": {"what": "the file was replaced", "found": None}})


class Watch:
    """Notes what it is told, and wakes who waits for it."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.events: list[tuple[str, Any]] = []
        self._changed = threading.Condition()

    def _note(self, what: str, name: str) -> None:
        with self._changed:
            self.told.append((what, name))
            self._changed.notify_all()

    def stage_ready(self, name: str) -> None:
        self._note("ready", name)

    def stage_died(self, name: str) -> None:
        self._note("died", name)

    def stage_event(self, name: str, event: Any) -> None:
        with self._changed:
            self.events.append((name, event))
            self._changed.notify_all()

    def wait(self, what: str, name: str, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.told.count((what, name)) >= count, 30), self.told

    def event(self, what: str, name: str, count: int = 1) -> dict[str, Any]:
        """The `count`-th event of a kind, once it was told; without its time."""

        def found() -> list[dict[str, Any]]:
            return [event for stage, event in self.events if (stage, event["what"]) == (name, what)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= count, 30), self.events
            return {key: value for key, value in found()[count - 1].items() if key not in ("at_ns", "what")}


def node(name: str) -> Any:
    """A stage of the pipeline, as far as a supervisor looks at it."""
    record = StageRecord(name, name, "m")
    return SimpleNamespace(name=name, kind=SimpleNamespace(name=name), model="m", record=lambda: record)


class Pipeline:
    """A supervisor over toy stages."""

    def __init__(
        self, arena: Any, behaviour: dict[str, Any] | None = None, placement: Any = None, **settings: Any
    ) -> None:
        self.watch = Watch()
        self.busy: set[str] = set()
        graph: Any = SimpleNamespace(stages=[node(name) for name in NAMES])
        zygote: Any = ToyZygote(behaviour)
        self.one = Supervisor(zygote, graph, arena, self.watch, lambda name: name not in self.busy)
        fd = os.open("/dev/null", os.O_RDONLY)
        self.one.start([fd], SETUP, placement or {}, **settings)
        os.close(fd)

    def kill(self, name: str) -> None:
        pid = self.one.stages[name].pid
        assert pid > 1  # 0 would be this test's own process group
        os.kill(pid, signal.SIGKILL)

    def state(self, name: str = "llm") -> str:
        return self.one.stages[name].state


Make = Callable[..., Pipeline]


def gone(pid: int) -> bool:
    """Whether the process ends; a watchdog, not a measure."""
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists():
        if "State:\tZ" in Path(f"/proc/{pid}/status").read_text():
            return True
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return True
