# SPDX-License-Identifier: Apache-2.0
"""The processes of one pipeline, from being asked for to their death: forked, restarted, replaced, ended.

All of it happens on the loop's thread; `supervisor.py` is what other threads see. A process that dies has the loans and
leases of all its stages taken back and is forked again, after a pause that grows with every death; too many deaths open
the circuit breaker, and its stages stay down until the window of these deaths has passed; the others go on. One that is
not ready in time is killed. A stage that is to run with another model is ended when nobody uses its process, and goes
back to the model before when it cannot start with that one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol

from dpfedge.link import Arena
from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.placement import Place, loading_cores, place
from dpfedge.pipeline.supervisor_loop import Loop, readable
from dpfedge.pipeline.supervisor_zygote import ZygoteKeeper
from dpfedge.pipeline.unit import StageState, Unit, Variant, units_of
from dpfedge.pipeline.wire import receive_message

__all__ = ["Units", "Watcher"]

_IDLE_PAUSE_S = 0.02  # between two questions whether a stage is still used
_END_GRACE_S = 2.0


class Watcher(Protocol):
    """Told about stages from the supervisor's thread; must return at once and raise nothing.

    One that also has `stage_event(name, event)` is told of what happens beside that: maps with `what`, `at_ns`
    (CLOCK_MONOTONIC) and more by kind: `restarted` {restarts, after_ms}, `down` {retry_s} (the circuit breaker opened),
    `late` {after_s} (not ready in time, and killed), `refused` {asked} (a priority the machine does not give),
    `replaced` {model, before, settings}, `replace failed` {model, settings, error}, and what a stage itself reports.
    """

    def stage_ready(self, name: str) -> None:
        """A stage is warm and serves."""

    def stage_died(self, name: str) -> None:
        """A stage's process ended, by itself or to be replaced; its leases are already taken back."""


class Units:
    """The processes of the stages; `changed` is called after every change of a state."""

    def __init__(
        self, zygote: Zygote, stages: Mapping[str, StageState], arena: Arena, watcher: Watcher,
        idle: Callable[[str], bool], changed: Callable[[], None],
    ) -> None:  # fmt: skip
        self.loop = Loop()
        self.keeper = ZygoteKeeper(zygote, self.loop, self)
        self.stopping = False
        self._stages, self._arena, self._watcher = stages, arena, watcher
        self._idle, self._changed = idle, changed
        self._units: Mapping[str, Unit] = {}
        self._placement: Mapping[str, Mapping[str, Any]] = {}
        self._start_max_s = 0.0
        self._owners = 0
        self._tell = getattr(watcher, "stage_event", None)

    def start(self, placement: Mapping[str, Mapping[str, Any]], order: Iterable[str], start_max_s: float) -> None:
        """Ask for every process, those with stages of `order` first."""
        self._placement, self._start_max_s = placement, start_max_s
        shared = [name for name in self._stages if self._place(name).isolation == "thread"]
        self._units = units_of(self._stages, shared)
        first = list(order)
        for name in dict.fromkeys(self._stages[name].unit for name in (*first, *self._stages)):
            self._spawn(self._units[name], heaviest=first[0] if first else "")

    def end(self, grace_s: float) -> None:
        """End every process: SIGTERM, then SIGKILL after `grace_s`, each with this time to follow."""
        self.loop.forget_due()
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + grace_s
            for unit in self._units.values():
                _signal(unit, number)
            while any(unit.pid for unit in self._units.values()) and (left := deadline - time.monotonic()) > 0:
                self.loop.round(left)

    def close(self) -> None:
        """End the zygote and watch nothing any more."""
        self.keeper.close()
        for unit in self._units.values():
            self._drop(unit)
        for state in self._stages.values():
            state.state, state.pid = "failed", 0
        self.loop.close()

    def replace(self, name: str, model: str | None, settings: Mapping[str, Any] | None) -> None:
        """Run stage `name` with these from its next start on; another model is a reason for one."""
        state = self._stages[name]
        own = None if model == state.node.model else model  # None is the pipeline's, by whatever name it is asked for
        state.wanted = Variant(
            state.wanted.model if model is None else own, state.wanted.settings if settings is None else settings
        )
        self._end_when_idle(self._units[state.unit])

    # --- the zygote's news ---

    def forked(self, unit: str, pid: int, pidfd: int, reason: str) -> None:
        """A process that was asked for; see `Told`."""
        one = self._units[unit]
        if pid and pidfd < 0:  # no descriptor was left to take it
            _end_unwatched(pid)
            pid, reason = 0, os.strerror(errno.EMFILE)
        if not pid:
            self._ended(one, {"what": "the process could not be started", "found": reason})
            return
        one.pid, one.pidfd = pid, pidfd
        for state in one.stages.values():
            state.pid = pid
        self.loop.watch(pidfd, partial(self._died, one))
        for message in one.early:
            self._ready(one, message["ready"], message)
        one.early.clear()

    def zygote_gone(self) -> bool:
        """Nothing can be forked; whoever waited for a process waits for the next zygote, if a stage has ever served."""
        for unit in self._units.values():
            if unit.pid == 0:
                self._drop(unit)
        served = any(state.served for state in self._stages.values())
        if not served:
            for state in self._stages.values():
                state.state, state.error = "failed", state.error or self.keeper.error
            self._changed()
        return served and not self.stopping

    def zygote_new(self) -> None:
        """Ask it for everything the last one was still asked for."""
        for unit in self._units.values():
            if unit.pid == 0 and any(state.state == "starting" for state in unit.stages.values()):
                self._spawn(unit)

    # --- starting ---

    def _place(self, name: str) -> Place:
        return place(name, self._placement, self._stages[name].node.kind.name)

    def _spawn(self, unit: Unit, heaviest: str = "") -> None:
        """Ask for the process, at the start beside the `heaviest` stage; without a zygote the next one is asked."""
        unit.begin()
        if not self.keeper.alive:
            return
        alone = len(unit.stages) == 1
        rows = [self._row(name, state, heaviest if alone else "") for name, state in unit.stages.items()]
        try:
            unit.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            self._ended(unit, {"what": "the process could not be started", "found": error.strerror})
            return
        self.loop.watch(unit.channel, partial(self._from_unit, unit))
        with theirs:
            self.keeper.ask({"unit": unit.name, "stages": rows}, theirs.fileno())
        self.loop.after(self._start_max_s, partial(self._late, unit, unit.serial))

    def _row(self, name: str, state: StageState, heaviest: str) -> dict[str, Any]:
        self._owners += 1
        state.owner = self._owners
        where = self._place(name)
        return {
            "stage": state.node.record().as_map(), "owner": state.owner,
            "threads": where.threads, "cores": where.cores, "nice": where.nice, "fifo": where.fifo,
            "spin_ns": where.spin_ns, "load_cores": loading_cores(name, heaviest, len(self._stages), where.cores),
            "model": state.started.model, "settings": dict(state.started.settings),
        }  # fmt: skip

    def _late(self, unit: Unit, serial: int) -> None:
        late = [(name, state) for name, state in unit.stages.items() if state.state == "starting"]
        if unit.serial != serial or not late:
            return
        for name, state in late:
            what = f"it was not ready after {self._start_max_s:g} s and was killed"
            remedy = "see the log above for what it was doing; budgets.start of the pipeline is how long it may take"
            state.error = {"what": what, "remedy": remedy}
            self._event(name, "late", after_s=self._start_max_s)
        if unit.pid:
            _signal(unit, signal.SIGKILL)
        else:
            self.keeper.kill()  # it was to fork this process, and did not even say that it could not

    def _from_unit(self, unit: Unit) -> None:
        assert unit.channel is not None
        message, _ = receive_message(unit.channel)
        if not message:
            self.loop.forget(unit.channel)
        elif "error" in message:
            self._stages[message["stage"]].error = message["error"]
        elif "event" in message:
            self._event(message["stage"], **message["event"])
        elif unit.pidfd < 0:
            unit.early.append(message)  # a quick stage may be ready before the zygote could say which process it is
        else:
            self._ready(unit, message["ready"], message)

    def _ready(self, unit: Unit, name: str, message: Mapping[str, Any]) -> None:
        state = unit.stages[name]
        state.facts, state.load_ms, state.warm_ms = message["facts"], message["load_ms"], message["warm_ms"]
        state.refused = tuple(message["refused"])
        before, state.proven = state.proven, state.started
        state.state, state.served = "ready", True
        self._watcher.stage_ready(name)
        for asked in state.refused:
            self._event(name, "refused", asked=asked)
        if before.model != state.proven.model:
            models = {"model": self._model(state, state.proven), "before": self._model(state, before)}
            self._event(name, "replaced", **models, settings=dict(state.proven.settings))
        elif unit.died_at:
            after_ms = round((time.monotonic() - unit.died_at) * 1e3, 1)
            self._event(name, "restarted", restarts=state.restarts, after_ms=after_ms)
        if unit.ready:
            unit.died_at = 0.0
        self._changed()
        self._end_when_idle(unit)

    # --- ending ---

    def _end_when_idle(self, unit: Unit) -> None:
        """End the process so that it comes back with what is wanted now; asked again until nobody uses it."""
        if unit.ending or not unit.ready or not unit.outdated():
            return  # one that is not ready yet is asked when it is
        if all(self._idle(name) for name in unit.stages):
            unit.ending = True
            _signal(unit, signal.SIGTERM)
            self.loop.after(_END_GRACE_S, partial(self._end_now, unit, unit.serial))
        elif not unit.asking:
            unit.asking = True
            self.loop.after(_IDLE_PAUSE_S, partial(self._ask_again, unit))

    def _ask_again(self, unit: Unit) -> None:
        unit.asking = False
        self._end_when_idle(unit)

    def _end_now(self, unit: Unit, serial: int) -> None:
        if unit.serial == serial and unit.ending:
            _signal(unit, signal.SIGKILL)

    def _died(self, unit: Unit) -> None:
        # the pidfd may become readable before the channel's last message was looked at
        while unit.channel is not None and self.loop.watches(unit.channel) and readable(unit.channel):
            self._from_unit(unit)
        self._ended(unit)

    def _ended(self, unit: Unit, error: Mapping[str, Any] | None = None) -> None:
        self._drop(unit)
        for state in unit.stages.values():
            self._arena.reclaim(state.owner)
            state.error = state.error or error
        if not self.stopping:
            self._next(unit)
            for name in unit.stages:
                self._watcher.stage_died(name)
        self._changed()

    def _next(self, unit: Unit) -> None:
        """What comes after this process."""
        if unit.ending:
            self._spawn_soon(unit, 0.0)
        elif not unit.ready and unit.served and (tried := self._gone_back(unit)):
            self._spawn_soon(unit, 0.0)
            for name, what in tried.items():
                self._event(name, "replace failed", **what)
        else:
            self._count(unit)

    def _spawn_soon(self, unit: Unit, pause_s: float, state: str = "restarting") -> None:
        unit.set(state)
        self.loop.after(pause_s, partial(self._spawn, unit))

    def _gone_back(self, unit: Unit) -> dict[str, dict[str, Any]]:
        tried = {name: unit.stages[name].started for name in unit.go_back()}
        return {
            name: {
                "model": self._model(unit.stages[name], variant), "settings": dict(variant.settings),
                "error": unit.stages[name].error or {"what": "the process ended while it started"},
            }
            for name, variant in tried.items()
        }  # fmt: skip

    def _count(self, unit: Unit) -> None:
        unit.deaths.add()
        unit.died_at = unit.died_at or time.monotonic()
        if not unit.served:
            self._share_blame(unit)
            unit.set("failed")  # what keeps a stage from its first start does not go away by itself
            return
        pause_s, broken = unit.deaths.pause_s()
        for name, state in unit.stages.items():
            state.restarts += 1
            if broken:
                self._event(name, "down", retry_s=round(pause_s, 1))
        self._spawn_soon(unit, pause_s, "failed" if broken else "restarting")

    def _share_blame(self, unit: Unit) -> None:
        """Give the stages that ended with another one the error of that."""
        guilty = next((name for name, state in unit.stages.items() if state.error), None)
        if guilty is not None:
            error = {"stage": guilty, **(unit.stages[guilty].error or {})}
            for state in unit.stages.values():
                state.error = state.error or error

    def _drop(self, unit: Unit) -> None:
        if unit.pidfd >= 0:
            self.loop.forget(unit.pidfd)
            os.close(unit.pidfd)
            unit.pidfd = -1
        if unit.channel is not None:
            self.loop.forget(unit.channel)
            unit.channel.close()
            unit.channel = None
        unit.pid = 0
        unit.early.clear()
        for state in unit.stages.values():
            state.pid = 0

    # --- telling ---

    @staticmethod
    def _model(state: StageState, variant: Variant) -> str:
        return variant.model or state.node.model

    def _event(self, name: str, what: str, **more: Any) -> None:
        if self._tell is not None and not self.stopping:
            self._tell(name, {"what": what, "at_ns": time.monotonic_ns(), **more})


def _end_unwatched(pid: int) -> None:
    """Kill a process that only its number is known of, and wait for its end: what it has is reclaimed next."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        for _ in range(1000):
            time.sleep(0.001)
            os.kill(pid, 0)


def _signal(unit: Unit, number: signal.Signals) -> None:
    if unit.pidfd < 0:
        return
    try:
        signal.pidfd_send_signal(unit.pidfd, number)
    except ProcessLookupError:
        return
