# SPDX-License-Identifier: Apache-2.0
"""Starts, watches and restarts the stages of one pipeline; it carries no request and reads no message.

One thread owns everything here: it waits on the zygote's socket, each process' channel and pidfd, and does with them
what `supervisor_units.py` says. This is what any other thread may ask.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dpfedge.errors import StageError, UsageError
from dpfedge.limits import STAGE_START_MAX_S
from dpfedge.link import Arena
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.supervisor_units import Units, Watcher
from dpfedge.pipeline.unit import StageState

__all__ = ["Supervisor", "Watcher"]

_PATIENCE_S = 5.0  # beyond the time a stage has: killing a late one, and saying so, takes a moment


class Supervisor:
    """Owns the zygote and the stage processes of one pipeline."""

    def __init__(
        self,
        zygote: Zygote,
        graph: Graph,
        arena: Arena,
        watcher: Watcher,
        idle: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """`idle`: whether nobody uses a stage right now; asked from the supervisor's thread, answers at once."""
        self.stages = {node.name: StageState(node) for node in graph.stages}
        self._changed = threading.Condition()
        self._units = Units(zygote, self.stages, arena, watcher, idle, self._notify)
        self._arena = arena
        self._files: list[int] = []
        self._start_max_s = float(STAGE_START_MAX_S)
        self._grace_s = 2.0
        self._thread = threading.Thread(target=self._run, name="dpf-supervisor", daemon=True)

    @property
    def zygote_pid(self) -> int:
        """The warmed parent's process id."""
        return self._units.keeper.pid

    def start(
        self,
        files: Sequence[int],
        setup: Mapping[str, Any],
        placement: Mapping[str, Mapping[str, Any]],
        order: Sequence[str] = (),
        start_max_s: float = STAGE_START_MAX_S,
    ) -> None:
        """Tell the zygote what to serve and fork every stage, those of `order` first; returns before they are ready.

        `files`: descriptors of the package and of its sidecar, if it has one; they stay the caller's. Without a package
        there are none. `setup`: folder (of a pipeline file, or None) and, with a package, chosen (a record), path,
        manifest (the digest it must have). `start_max_s`: how long a process may take until all its stages are ready.
        """
        self._files = [os.dup(fd) for fd in files]
        self._start_max_s = start_max_s
        self._units.keeper.introduce(dict(setup), [self._arena.fd, *self._files])
        self._units.start(placement, order, start_max_s)
        self._thread.start()

    def wait_ready(self, timeout_s: float | None = None) -> None:
        """Block until every stage serves; StageError names one that cannot, or says that `stop` came first.

        Without `timeout_s` that ends because no stage has more than its time to start.
        """
        timeout_s = self._start_max_s + _PATIENCE_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self.ready():
                self._raise_failed()
                left = deadline - time.monotonic()
                if self._units.stopping:
                    raise StageError("the pipeline was stopped while it started", stage=next(iter(self.stages)))
                if left <= 0:
                    slow = next(name for name, state in self.stages.items() if state.state != "ready")
                    remedy = "see the log above for what it is doing"
                    raise StageError(f"not ready after {timeout_s:.0f} s", stage=slow, remedy=remedy)
                self._changed.wait(left)

    def ready(self) -> bool:
        """Whether every stage is warm."""
        return not self._units.stopping and all(state.state == "ready" for state in self.stages.values())

    def replace(self, name: str, *, model: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """From now on the stage runs with this model and these settings, also after a death; returns at once.

        What is None stays as it is; `settings` are all that win over the pipeline's own, {} none of them. Another model
        ends the stage's process as soon as nobody uses it (nor a stage it shares it with) and starts it anew; settings
        alone end nothing: whoever sets them tells the running stage. A start that fails goes back to what was ready
        before and tries that. Each is told as an event. UsageError when there is no such stage.
        """
        if name not in self.stages:
            raise UsageError("there is no such stage", where="replace", found=name, allowed=", ".join(self.stages))
        kept = None if settings is None else dict(settings)
        self._units.loop.call(partial(self._units.replace, name, model, kept))

    def stop(self, grace_s: float = 2.0) -> None:
        """End every stage: SIGTERM, then SIGKILL after `grace_s`. A second call does nothing."""
        if self._units.stopping:
            return
        self._grace_s, self._units.stopping = grace_s, True
        self._notify()
        self._units.loop.call(lambda: None)
        if self._thread.ident is None:
            self._close()
        else:
            self._thread.join()

    # --- the supervisor's thread ---

    def _run(self) -> None:
        try:
            while not self._units.stopping:
                self._units.loop.round()
            self._units.end(self._grace_s)
        finally:
            self._close()

    def _close(self) -> None:
        self._units.close()
        self._notify()
        for fd in self._files:
            os.close(fd)

    # --- whoever waits ---

    def _raise_failed(self) -> None:
        for name, state in self.stages.items():
            if state.state == "failed":
                error = state.error or {}
                raise StageError(
                    error.get("what") or "the process ended while it started", stage=error.get("stage") or name,
                    found=error.get("found"), allowed=error.get("allowed"), remedy=error.get("remedy"),
                )  # fmt: skip

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
