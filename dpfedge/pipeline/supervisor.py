# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and restarts the stage processes of one pipeline; it carries no request and reads no message.

One thread waits on the zygote's socket, each stage's channel and each stage's pidfd. A stage that dies has its loans
and leases taken back and is forked again, after a pause that grows with every death; too many deaths open the circuit
breaker and the stage stays down until the pipeline is started again.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dpfedge.errors import StageError
from dpfedge.limits import STAGE_RESTARTS_MAX, STAGE_RESTARTS_WINDOW_S
from dpfedge.link import Arena
from dpfedge.pipeline.graph import Graph, StageNode
from dpfedge.pipeline.placement import place
from dpfedge.pipeline.wire import receive_message, send_message
from dpfedge.pipeline.zygote import environment

__all__ = ["StageState", "Supervisor", "Watcher"]

_BACK_OFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)


class Watcher(Protocol):
    """Told about stages from the supervisor's thread; must return at once."""

    def stage_ready(self, name: str) -> None:
        """A stage is warm and serves."""

    def stage_died(self, name: str) -> None:
        """A stage's process ended; its leases are already taken back."""


@dataclass(slots=True)
class StageState:
    """What is known of one stage's process."""

    node: StageNode
    state: str = "starting"
    pid: int = 0
    pidfd: int = -1
    owner: int = 0
    restarts: int = 0
    served: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    load_ms: float = 0.0
    warm_ms: float = 0.0
    error: Mapping[str, Any] | None = None
    channel: socket.socket | None = None
    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=STAGE_RESTARTS_MAX))


class Zygote:
    """The warmed parent process, started before anything else so that its imports overlap the rest of the start."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "dpfedge.pipeline.zygote", str(theirs.fileno())]
        self.process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environment(os.environ), stdin=subprocess.DEVNULL
        )
        theirs.close()
        self.control = ours

    def stop(self) -> None:
        """End it and, through it, every stage that is left."""
        self.control.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Supervisor:
    """Owns the zygote and the stage processes of one pipeline."""

    def __init__(self, zygote: Zygote, graph: Graph, arena: Arena, watcher: Watcher) -> None:
        self._zygote, self._arena, self._watcher = zygote, arena, watcher
        self.stages = {node.name: StageState(node) for node in graph.stages}
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        self._due: list[tuple[float, str]] = []
        self._stopping = False
        self._changed = threading.Condition()
        self._placement: Mapping[str, Mapping[str, Any]] = {}
        self._incarnation = 0
        self._thread = threading.Thread(target=self._watch, name="dpf-supervisor", daemon=True)

    def start(self, package_fd: int, board: str, placement: Mapping[str, Mapping[str, Any]]) -> None:
        """Tell the zygote what to serve and fork every stage; returns before they are ready."""
        self._placement = placement
        send_message(self._zygote.control, {"board": board}, [package_fd, self._arena.fd])
        self._selector.register(self._zygote.control, selectors.EVENT_READ, ("zygote", ""))
        self._selector.register(self._wake_r, selectors.EVENT_READ, ("wake", ""))
        for name in self.stages:
            self._spawn(name)
        self._thread.start()

    def wait_ready(self, timeout_s: float) -> None:
        """Block until every stage serves; StageError names one that cannot."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self.ready():
                self._raise_failed()
                if self._stopping:
                    raise StageError("the pipeline was stopped while it started", stage=next(iter(self.stages)))
                left = deadline - time.monotonic()
                if left <= 0:
                    slow = [name for name, state in self.stages.items() if state.state != "ready"]
                    raise StageError(
                        f"not ready after {timeout_s:.0f} s",
                        stage=slow[0],
                        remedy="see the log above for what it is doing",
                    )
                self._changed.wait(left)

    @property
    def zygote_pid(self) -> int:
        """The warmed parent's process id."""
        return self._zygote.process.pid

    def ready(self) -> bool:
        """Whether every stage is warm."""
        return all(state.state == "ready" for state in self.stages.values())

    def stop(self, grace_s: float = 2.0) -> None:
        """End every stage: SIGTERM, then SIGKILL after `grace_s`."""
        self._stopping = True
        self._notify()
        for state in self.stages.values():
            _signal(state, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        with self._changed:
            while any(state.pid for state in self.stages.values()) and time.monotonic() < deadline:
                self._changed.wait(deadline - time.monotonic())
        for state in self.stages.values():
            _signal(state, signal.SIGKILL)
        os.write(self._wake_w, b"x")
        if self._thread.is_alive():
            self._thread.join(timeout=grace_s)
        self._zygote.stop()
        self._close()

    def _close(self) -> None:
        self._selector.close()
        os.close(self._wake_r)
        os.close(self._wake_w)
        for state in self.stages.values():
            self._drop(state)

    def _raise_failed(self) -> None:
        for name, state in self.stages.items():
            if state.state == "failed":
                error = state.error or {}
                raise StageError(
                    error.get("what") or "the process ended while it started", stage=name,
                    found=error.get("found"), allowed=error.get("allowed"), remedy=error.get("remedy"),
                )  # fmt: skip

    def _spawn(self, name: str) -> None:
        state = self.stages[name]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._incarnation += 1
        state.owner, state.state, state.channel, state.error = self._incarnation, "starting", ours, None
        where = place(name, self._placement)
        command = {
            "stage": name, "model": state.node.model, "config": dict(state.node.config), "owner": state.owner,
            "threads": where.threads, "cores": where.cores, "nice": where.nice, "spin_ns": where.spin_ns,
        }  # fmt: skip
        send_message(self._zygote.control, command, [theirs.fileno()])
        theirs.close()
        self._selector.register(ours, selectors.EVENT_READ, ("channel", name))

    def _watch(self) -> None:
        while not self._stopping or any(state.pid for state in self.stages.values()):
            for key, _ in self._selector.select(self._next_due()):
                what, name = key.data
                if what == "wake":
                    return
                if what == "zygote":
                    self._from_zygote()
                elif what == "channel":
                    self._from_stage(name)
                else:
                    self._died(name)
            self._spawn_due()

    def _next_due(self) -> float | None:
        return max(0.0, min(at for at, _ in self._due) - time.monotonic()) if self._due else None

    def _spawn_due(self) -> None:
        now = time.monotonic()
        due = [name for at, name in self._due if at <= now]
        self._due = [(at, name) for at, name in self._due if at > now]
        for name in due:
            if not self._stopping:
                self._spawn(name)

    def _from_zygote(self) -> None:
        message, _ = receive_message(self._zygote.control)
        if not message:
            self._selector.unregister(self._zygote.control)
            self._zygote_gone()
            return
        state = self.stages[message["stage"]]
        state.pid = message["pid"]
        try:
            state.pidfd = os.pidfd_open(state.pid)
        except ProcessLookupError:
            self._died(message["stage"])
            return
        self._selector.register(state.pidfd, selectors.EVENT_READ, ("pidfd", message["stage"]))

    def _zygote_gone(self) -> None:
        for state in self.stages.values():
            if state.state == "starting":
                state.state = "failed"
        self._notify()

    def _from_stage(self, name: str) -> None:
        state = self.stages[name]
        if state.channel is None:  # dropped by its pidfd in this same round
            return
        message, _ = receive_message(state.channel)
        if not message:
            _unregister(self._selector, state.channel)
        elif "error" in message:
            state.error = message["error"]
        else:
            state.facts, state.load_ms, state.warm_ms = message["facts"], message["load_ms"], message["warm_ms"]
            state.state, state.served = "ready", True
            self._watcher.stage_ready(name)
            self._notify()

    def _died(self, name: str) -> None:
        state = self.stages[name]
        if not state.pid:
            return
        self._last_words(name, state)
        self._drop(state)
        self._arena.reclaim(state.owner)
        state.pid = 0
        now = time.monotonic()
        while state.deaths and state.deaths[0] < now - STAGE_RESTARTS_WINDOW_S:
            state.deaths.popleft()
        state.deaths.append(now)
        if not self._stopping:
            self._schedule(name, state, now)
            self._watcher.stage_died(name)
        self._notify()

    def _last_words(self, name: str, state: StageState) -> None:
        # the pidfd may become readable before the channel's last message was looked at
        if state.channel is not None and select.select([state.channel], [], [], 0)[0]:
            self._from_stage(name)

    def _schedule(self, name: str, state: StageState, now: float) -> None:
        never_served = not state.served
        if never_served or len(state.deaths) >= STAGE_RESTARTS_MAX:
            state.state = "failed"
            return
        state.state = "restarting"
        state.restarts += 1
        pause = _BACK_OFF_S[min(len(state.deaths), len(_BACK_OFF_S)) - 1]
        self._due.append((now + pause, name))

    def _drop(self, state: StageState) -> None:
        if state.pidfd >= 0:
            _unregister(self._selector, state.pidfd)
            os.close(state.pidfd)
            state.pidfd = -1
        if state.channel is not None:
            _unregister(self._selector, state.channel)
            state.channel.close()
            state.channel = None

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _unregister(selector: selectors.BaseSelector, fileobj: int | socket.socket) -> None:
    mapping = selector.get_map()  # None once the selector is closed
    if mapping is not None and fileobj in mapping:
        selector.unregister(fileobj)


def _signal(state: StageState, number: signal.Signals) -> None:
    if state.pidfd < 0:
        return
    try:
        signal.pidfd_send_signal(state.pidfd, number)
    except ProcessLookupError:
        return
