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
from typing import Any

from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.supervisor import Supervisor
from dpfedge.pipeline.wire import receive_message, send_message

NAMES = ("decoder", "llm")
SETUP = {"chosen": {}, "path": "x", "manifest": ""}


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
                self.behaviour.get(name, says_ready)(socket.socket(fileno=channel_fd))
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


def says_ready(channel: socket.socket) -> None:
    send_message(channel, {"ready": "x", "facts": {"pid": os.getpid()}, "load_ms": 1.0, "warm_ms": 2.0})
    signal.pause()


def deaf(channel: socket.socket) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    send_message(channel, {"ready": "x", "facts": {}, "load_ms": 1.0, "warm_ms": 2.0})
    while True:
        time.sleep(10)


def hangs(channel: socket.socket) -> None:
    signal.pause()


def refuses(channel: socket.socket) -> None:
    send_message(channel, {"error": {"what": "bad model", "found": "x", "allowed": None, "remedy": "fix it"}})


def crashes(channel: socket.socket) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def cannot_bind(control: socket.socket) -> None:
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
        self.one.start([fd], SETUP, {})
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
