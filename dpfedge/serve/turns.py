# SPDX-License-Identifier: Apache-2.0
"""The turns of a server, for whoever writes or traces them: an observer's calls in, records out, in a thread.

The event loop only puts a record into a bounded queue. It formats nothing and knows no file.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpfedge.limits import TURN_QUEUE_MAX
from dpfedge.pipeline.events import Failed, TurnDone
from dpfedge.pipeline.observer import Observer
from dpfedge.pipeline.plan import Plan
from dpfedge.records import dataclass
from dpfedge.stage.api import Mode

__all__ = ["Consumer", "Happened", "Reporter"]


@dataclass(frozen=True, slots=True)
class Happened:
    """What happened, `at_ns` (CLOCK_MONOTONIC). A record without `mode` is of the stage `stage`."""

    what: str
    """`done`, `failed`, `cancelled`: the turn's outcome. `died`, `ready`: the stage's. `event`: `detail` tells.

    `lost`: so many records were, as `turn` says.
    """
    at_ns: int
    key: int = 0
    turn: int = 0
    mode: Mode | None = None
    opened_ns: int = 0
    """When the request got its place; of a conversation, which has many turns, too."""
    event: TurnDone | Failed | None = None
    package: str = ""
    stage: str = ""
    detail: Mapping[str, Any] | None = None
    """What happened to a stage, or (`stage` empty) to the pipeline, as `Observer.happened` is told."""


Consumer = Callable[[Happened], None]


class Reporter:
    """Call it with a plan for the observer of its runtime; `consumers` are called in a thread of its own."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = tuple(consumers)
        self._queue: queue.SimpleQueue[Happened | Callable[[], None] | None] = queue.SimpleQueue()
        self._lost = 0
        self._thread = threading.Thread(target=self._run, name="dpf-turns", daemon=True)
        self._thread.start()

    def __call__(self, plan: Plan) -> Observer:
        return _Turns(plan.name, self.put)

    def put(self, happened: Happened) -> None:
        """Pass it on to the thread; when that is far behind, it is counted as lost."""
        if self._queue.qsize() >= TURN_QUEUE_MAX:
            self._lost += 1
            return
        if self._lost:
            lost, self._lost = self._lost, 0
            self._queue.put(Happened("lost", happened.at_ns, turn=lost))
        self._queue.put(happened)

    def call(self, action: Callable[[], None]) -> None:
        """Run `action` in the thread, after what was put before; also from a signal handler."""
        self._queue.put(action)

    def close(self, patience_s: float = 2.0) -> None:
        """Let the thread end what is queued, for at most `patience_s`."""
        self._queue.put(None)
        self._thread.join(patience_s)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if not isinstance(item, Happened):
                item()
                continue
            for consumer in self._consumers:
                consumer(item)


class _Turns(Observer):
    """Of one runtime; knows the requests that are open, at most as many as the table has places."""

    def __init__(self, package: str, put: Consumer) -> None:
        self._package, self._put = package, put
        self._open: dict[int, tuple[int, Mode]] = {}
        self._answered: set[int] = set()

    def opened(self, key: int, mode: Mode) -> None:
        self._open[key] = (time.monotonic_ns(), mode)

    def ended(self, key: int, mode: Mode, event: TurnDone | Failed) -> None:
        self._answered.add(key)
        if isinstance(event, Failed):
            what = "failed"
        else:
            what = "cancelled" if event.finish == "cancelled" else "done"
        opened_ns, _ = self._open.get(key, (0, mode))
        self._put(Happened(what, event.at_ns, key, event.turn, mode, opened_ns, event, self._package))

    def closed(self, key: int) -> None:
        opened_ns, mode = self._open.pop(key, (0, None))
        if mode not in (None, Mode.CONVERSE) and key not in self._answered:
            # nobody waits for a request that is closed before its end
            self._put(Happened("cancelled", time.monotonic_ns(), key, 0, mode, opened_ns, None, self._package))
        self._answered.discard(key)

    def stage_ready(self, name: str) -> None:
        self._put(Happened("ready", time.monotonic_ns(), package=self._package, stage=name))

    def stage_died(self, name: str) -> None:
        self._put(Happened("died", time.monotonic_ns(), package=self._package, stage=name))

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        self._put(Happened("event", event["at_ns"], package=self._package, stage=stage, detail=event))
