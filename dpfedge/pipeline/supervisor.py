# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and restarts the stage processes of one pipeline; it carries no request and reads no message.

One thread owns everything here: it waits on the zygote's socket, each stage's channel and each stage's pidfd. A stage
that dies has its loans and leases taken back and is forked again, after a pause that grows with every death; too many
deaths open the circuit breaker, and the stage stays down until the window of these deaths has passed. A zygote that
dies takes its stages with it; a new one is started for the package that was opened first.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from dpfedge.errors import StageError
from dpfedge.limits import STAGE_RESTARTS_MAX, STAGE_RESTARTS_WINDOW_S, STAGE_START_MAX_S
from dpfedge.link import Arena
from dpfedge.pipeline.graph import Graph, StageNode
from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.placement import loading_cores, place
from dpfedge.pipeline.wire import receive_message, send_message

__all__ = ["StageState", "Supervisor", "Watcher"]

_BACK_OFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)


class Watcher(Protocol):
    """Told about stages from the supervisor's thread; must return at once and raise nothing."""

    def stage_ready(self, name: str) -> None:
        """A stage is warm and serves."""

    def stage_died(self, name: str) -> None:
        """A stage's process ended; its leases are already taken back."""


@dataclass(slots=True)
class StageState:
    """What is known of one stage's process; written by the supervisor's thread only."""

    node: StageNode
    state: str = "starting"
    """`starting`, `ready`, `restarting`, or `failed`: down for good, or until the circuit breaker closes."""
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


class Supervisor:
    """Owns the zygote and the stage processes of one pipeline."""

    def __init__(self, zygote: Zygote, graph: Graph, arena: Arena, watcher: Watcher) -> None:
        self._arena, self._watcher = arena, watcher
        self._zygote: Zygote | None = zygote
        self.zygote_pid = zygote.process.pid
        """The warmed parent's process id."""
        self.stages = {node.name: StageState(node) for node in graph.stages}
        self._selector = selectors.DefaultSelector()
        self._wake_r, self._wake_w = os.pipe()
        self._due: list[tuple[float, Callable[[], None]]] = []
        self._setup: dict[str, Any] = {}
        self._files: list[int] = []
        self._zygote_error: Mapping[str, Any] | None = None
        self._zygote_deaths: deque[float] = deque(maxlen=STAGE_RESTARTS_MAX)
        self._placement: Mapping[str, Mapping[str, Any]] = {}
        self._incarnation = 0
        self._stopping = self._closed = False
        self._grace_s = 2.0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="dpf-supervisor", daemon=True)

    def start(
        self,
        files: Sequence[int],
        setup: Mapping[str, Any],
        placement: Mapping[str, Mapping[str, Any]],
        order: Sequence[str] = (),
    ) -> None:
        """Tell the zygote what to serve and fork every stage, those of `order` first; returns before they are ready.

        `files`: descriptors of the package and of its sidecar, if it has one; they stay the caller's. `setup`: chosen
        (a record), path, manifest (the digest it must have).
        """
        self._setup, self._placement = dict(setup), placement
        self._files = [os.dup(fd) for fd in files]
        self._selector.register(self._wake_r, selectors.EVENT_READ, ("wake", ""))
        self._introduce()
        for name in dict.fromkeys((*order, *self.stages)):
            self._spawn(name, heaviest=next(iter(order), ""))
        self._thread.start()

    def wait_ready(self, timeout_s: float = STAGE_START_MAX_S) -> None:
        """Block until every stage serves; StageError names one that cannot, or says that `stop` came first."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self.ready():
                self._raise_failed()
                left = deadline - time.monotonic()
                if self._stopping:
                    raise StageError("the pipeline was stopped while it started", stage=next(iter(self.stages)))
                if left <= 0:
                    slow = next(name for name, state in self.stages.items() if state.state != "ready")
                    remedy = "see the log above for what it is doing"
                    raise StageError(f"not ready after {timeout_s:.0f} s", stage=slow, remedy=remedy)
                self._changed.wait(left)

    def ready(self) -> bool:
        """Whether every stage is warm."""
        return not self._stopping and all(state.state == "ready" for state in self.stages.values())

    def stop(self, grace_s: float = 2.0) -> None:
        """End every stage: SIGTERM, then SIGKILL after `grace_s`. A second call does nothing."""
        if self._stopping:
            return
        self._grace_s, self._stopping = grace_s, True
        with self._changed:
            self._changed.notify_all()
            if not self._closed:
                os.write(self._wake_w, b"x")
        if self._thread.ident is None:
            self._close()
        else:
            self._thread.join()

    # --- the supervisor's thread ---

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._round(self._next_due())
            self._end_stages()
        finally:
            self._close()

    def _round(self, timeout_s: float | None) -> None:
        for key, _ in self._selector.select(timeout_s):
            what, name = key.data
            if what == "zygote":
                if self._zygote is not None and _readable(self._zygote.control):  # not read in this same round
                    self._from_zygote()
            elif what == "channel":
                self._from_stage(name)
            elif what == "pidfd":
                self._died(name)
            else:
                os.read(self._wake_r, 64)
        now = time.monotonic()
        due = [action for at, action in self._due if at <= now]
        self._due = [(at, action) for at, action in self._due if at > now]
        for action in due:
            if not self._stopping:
                action()

    def _next_due(self) -> float | None:
        return max(0.0, min(at for at, _ in self._due) - time.monotonic()) if self._due else None

    def _after(self, pause_s: float, action: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + pause_s, action))

    def _end_stages(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + self._grace_s
            for state in self.stages.values():
                _signal(state, number)
            while any(state.pid for state in self.stages.values()) and (left := deadline - time.monotonic()) > 0:
                self._round(left)

    def _close(self) -> None:
        with self._changed:
            self._closed = True
        if self._zygote is not None:
            self._zygote.stop()
            self._zygote = None
        for state in self.stages.values():
            self._drop(state)
            state.state, state.pid = "failed", 0
        self._notify()
        self._selector.close()
        for fd in (self._wake_r, self._wake_w, *self._files):
            if fd >= 0:
                os.close(fd)

    # --- the zygote ---

    def _introduce(self) -> None:
        assert self._zygote is not None
        self._selector.register(self._zygote.control, selectors.EVENT_READ, ("zygote", ""))
        try:
            send_message(self._zygote.control, self._setup, [self._arena.fd, *self._files])
        except OSError:
            return  # it is gone already; its socket says so in the next round

    def _from_zygote(self) -> None:
        assert self._zygote is not None
        message, fds = receive_message(self._zygote.control)
        if not message:
            self._zygote_gone(self._zygote)
        elif "stage" not in message:
            self._zygote_error = message["error"]
        elif message["pid"]:
            state = self.stages[message["stage"]]
            state.pid, state.pidfd = message["pid"], fds[0]
            self._selector.register(state.pidfd, selectors.EVENT_READ, ("pidfd", message["stage"]))
        else:
            self._ended(message["stage"], {"what": "the process could not be started", "found": message["reason"]})

    def _zygote_gone(self, zygote: Zygote) -> None:
        _unregister(self._selector, zygote.control)
        zygote.stop(0.0)
        self._zygote = None
        self._zygote_deaths.append(time.monotonic())
        for state in self.stages.values():
            if state.pid == 0 and state.channel is not None:
                self._drop(state)
        if not any(state.served for state in self.stages.values()):
            for state in self.stages.values():
                state.state, state.error = "failed", self._zygote_error
            self._notify()
        elif not self._stopping:
            self._after(_pause(self._zygote_deaths), self._new_zygote)

    def _new_zygote(self) -> None:
        try:
            self._zygote = Zygote()
        except OSError:  # no memory or process for it now
            self._after(_BACK_OFF_S[-1], self._new_zygote)
            return
        self.zygote_pid = self._zygote.process.pid
        self._introduce()
        for name, state in self.stages.items():
            if state.pid == 0 and state.state == "starting":
                self._spawn(name)

    # --- stages ---

    def _spawn(self, name: str, heaviest: str = "") -> None:
        """Ask the zygote for the stage, at the start beside the `heaviest`; without a zygote the next one is asked."""
        state = self.stages[name]
        state.state, state.error = "starting", None
        if self._zygote is None:
            return
        self._incarnation += 1
        state.owner = self._incarnation
        state.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._selector.register(state.channel, selectors.EVENT_READ, ("channel", name))
        where = place(name, self._placement)
        command = {
            "stage": name, "owner": state.owner, "threads": where.threads, "cores": where.cores, "nice": where.nice,
            "spin_ns": where.spin_ns, "load_cores": loading_cores(name, heaviest, len(self.stages), where.cores),
        }  # fmt: skip
        try:
            send_message(self._zygote.control, command, [theirs.fileno()])
        except OSError:
            return  # the zygote is gone; its socket says so in the next round
        finally:
            theirs.close()
        self._after(STAGE_START_MAX_S, partial(self._late, state, state.owner))

    def _late(self, state: StageState, owner: int) -> None:
        if state.owner == owner and state.state == "starting":
            _signal(state, signal.SIGKILL)

    def _from_stage(self, name: str) -> None:
        state = self.stages[name]
        if state.channel is None:  # dropped in this same round
            return
        message, _ = receive_message(state.channel)
        if not message:
            _unregister(self._selector, state.channel)
        elif "error" in message:
            state.error = message["error"]
        elif self._known(state):
            state.facts, state.load_ms, state.warm_ms = message["facts"], message["load_ms"], message["warm_ms"]
            state.state, state.served = "ready", True
            self._watcher.stage_ready(name)
            self._notify()

    def _known(self, state: StageState) -> bool:
        """Whether the stage's process is known; a quick stage may be ready before the zygote could say which it is."""
        while state.pidfd < 0 and self._zygote is not None:
            self._from_zygote()
        return state.pidfd >= 0

    def _died(self, name: str) -> None:
        state = self.stages[name]
        if state.pidfd < 0:  # dropped in this same round
            return
        # the pidfd may become readable before the channel's last message was looked at
        channel = state.channel
        while channel is not None and channel in self._selector.get_map() and _readable(channel):
            self._from_stage(name)
        self._ended(name, state.error)

    def _ended(self, name: str, error: Mapping[str, Any] | None) -> None:
        state = self.stages[name]
        self._drop(state)
        self._arena.reclaim(state.owner)
        state.pid, state.error = 0, error
        if not self._stopping:
            self._schedule(name, state)
            self._watcher.stage_died(name)
        self._notify()

    def _schedule(self, name: str, state: StageState) -> None:
        state.deaths.append(time.monotonic())
        if not state.served:
            state.state = "failed"  # what keeps a stage from its first start does not go away by itself
            return
        state.restarts += 1
        pause = _pause(state.deaths)
        state.state = "failed" if pause > _BACK_OFF_S[-1] else "restarting"
        self._after(pause, partial(self._spawn, name))

    def _drop(self, state: StageState) -> None:
        if state.pidfd >= 0:
            _unregister(self._selector, state.pidfd)
            os.close(state.pidfd)
            state.pidfd = -1
        if state.channel is not None:
            _unregister(self._selector, state.channel)
            state.channel.close()
            state.channel = None

    # --- whoever waits ---

    def _raise_failed(self) -> None:
        for name, state in self.stages.items():
            if state.state == "failed":
                error = state.error or {}
                raise StageError(
                    error.get("what") or "the process ended while it started", stage=name,
                    found=error.get("found"), allowed=error.get("allowed"), remedy=error.get("remedy"),
                )  # fmt: skip

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _pause(deaths: deque[float]) -> float:
    """Seconds until the next try: by the number of deaths in the window; after too many, until the first leaves it."""
    now = time.monotonic()
    while deaths and deaths[0] <= now - STAGE_RESTARTS_WINDOW_S:
        deaths.popleft()
    if len(deaths) >= STAGE_RESTARTS_MAX:
        return max(_BACK_OFF_S[-1] + 1.0, deaths[0] + STAGE_RESTARTS_WINDOW_S - now)
    return _BACK_OFF_S[min(max(1, len(deaths)), len(_BACK_OFF_S)) - 1]


def _readable(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(0))


def _unregister(selector: selectors.BaseSelector, fileobj: int | socket.socket) -> None:
    if fileobj in selector.get_map():
        selector.unregister(fileobj)


def _signal(state: StageState, number: signal.Signals) -> None:
    if state.pidfd < 0:
        return
    try:
        signal.pidfd_send_signal(state.pidfd, number)
    except ProcessLookupError:
        return
