# SPDX-License-Identifier: Apache-2.0
"""A pipeline that does with less while its machine is pressed: pressure once a second in, changed stages out.

A thread samples the sensors and asks the ladder. A setting goes to the running stage as a message, and to the
supervisor, so that the stage has it after a death too; a model is the supervisor's work. Messages are sent on the event
loop, which owns the links; one that finds its link full is sent again a second later, with what holds then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dpfedge.errors import WouldBlock
from dpfedge.limits import EVENTS_KEPT
from dpfedge.pipeline.supervisor_units import Watcher

if TYPE_CHECKING:  # a pipeline without a ladder needs none of them to start
    from dpfedge.pipeline.ladder import Change, Ladder
    from dpfedge.pipeline.pressure import Pressure
    from dpfedge.pipeline.rungs import Node

__all__ = ["Degrading", "Gauge", "Hands", "Told", "Watched", "degrading"]

_INTERVAL_S = 1.0
Tell = Callable[[str, Mapping[str, Any]], None]
"""Told of what happened to a stage, or (empty) to the pipeline."""


class Gauge(Protocol):
    """What samples pressure; `pressure.Sensors` is one."""

    @property
    def names(self) -> frozenset[str]:
        """The fields that can have a value."""

    @property
    def power_modes(self) -> Sequence[str]:
        """The names a power mode can have, where they are known."""

    def sample(self) -> Pressure:
        """What is so now."""


class Hands(Protocol):
    """What can change stages: an engine and its supervisor."""

    def replace(self, name: str, *, model: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """From now on, and after a death, a stage runs with these; None: as it is. From any thread, returns at once."""

    def send_settings(self, stage: str, settings: Mapping[str, Any]) -> None:
        """Tell the running stage, on the event loop; WouldBlock when its link is full."""

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` on the event loop soon; from any thread. Dropped when the loop is closed."""


class Told(Watcher, Protocol):
    """Who is told of a pipeline's stages, and of everything else that happens to it."""

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        """Something did, to a stage or (empty) to the pipeline; on the event loop."""

    def post(self, action: Callable[[], None]) -> None:
        """See `Hands.post`."""

    def resting(self, keys: Iterable[int], stage: str) -> bool:
        """Whether these requests lose nothing when the stage is started anew now; from any thread, at once."""


class Watched:
    """A watcher that also notes what the supervisor and the stages themselves report."""

    def __init__(self, watcher: Watcher, note: Tell) -> None:
        self.stage_ready, self.stage_died, self.stage_event = watcher.stage_ready, watcher.stage_died, note


class Degrading:
    """One pipeline's ladder at work. `start` and `stop` it, ask `status` from any thread."""

    def __init__(
        self, ladder: Ladder | None, gauge: Callable[[], Gauge], nodes: Mapping[str, Node], hands: Hands, tell: Tell,
        left_out: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`gauge` makes the sensors when they are first needed; `tell` gets each event on the event loop.

        `left_out`: why optional steps are not in `ladder`.
        """
        self._ladder, self._nodes, self._hands, self._tell = ladder, nodes, hands, tell
        self._make_gauge, self._left_out = gauge, tuple(left_out)
        self._gauge: Gauge | None = None
        self._pressure: Pressure | None = None
        self._sampled_ns = 0
        self._events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS_KEPT)
        self._steps = () if ladder is None else tuple(step.name for step in ladder.steps)
        self._entered = dict.fromkeys(self._steps, 0)
        self._unsent: dict[str, Mapping[str, Any]] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dpf-degrading", daemon=True)

    def start(self) -> None:
        """Begin; a ladder without steps needs no thread."""
        for line in self._left_out:
            self.note("", {"what": "step left out", "at_ns": time.monotonic_ns(), "reason": line})
        if self._steps:
            self._thread.start()

    def stop(self) -> None:
        """End; nothing is sent from now on. Stages stay as they are."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        with self._lock:
            self._unsent.clear()

    def status(self) -> dict[str, Any]:
        """`pressure` now, the ladder's `level` and steps in order, and the last events; plain data.

        `entered`: step → how often it was entered since the start; `ago_ms` of an event: how long ago it was.
        """
        now_ns, level = time.monotonic_ns(), 0 if self._ladder is None else self._ladder.level
        pressure = self._sample(now_ns)
        events = [{**event, "ago_ms": round((now_ns - event["at_ns"]) / 1e6, 1)} for event in tuple(self._events)]
        return {
            "pressure": pressure.figures(), "level": level, "steps": list(self._steps),
            "step": self._steps[level - 1] if level else None,
            "left_out": list(self._left_out), "entered": dict(self._entered), "events": events,
        }  # fmt: skip

    def memory_free(self) -> float | None:
        """The free share of memory, 0 to 1, a second old at most; None when no file tells."""
        return self._sample(time.monotonic_ns()).memory_free

    def tick(self, now_ns: int) -> None:
        """One look: sample, change what is to change, and send again what found no space."""
        assert self._ladder is not None
        for change in self._ladder.update(self._sample(now_ns, force=True), now_ns):
            self._apply(change, self._ladder)
            self._entered[change.step] += change.entered
            self.note("", change.record())
        if self._unsent:
            self._hands.post(self._flush)

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            self.tick(time.monotonic_ns())

    def _sample(self, now_ns: int, *, force: bool = False) -> Pressure:
        # many may ask for the status; the sensors' files are read once a second at most
        if force or self._pressure is None or now_ns - self._sampled_ns >= _INTERVAL_S * 1e9:
            self._gauge = self._gauge or self._make_gauge()
            self._sampled_ns, self._pressure = now_ns, self._gauge.sample()
        return self._pressure

    def _apply(self, change: Change, ladder: Ladder) -> None:
        from dpfedge.pipeline.rungs import MODEL, over

        for stage, row in change.settings.items():
            node, touched = self._nodes[stage], ladder.touched(stage)
            if MODEL in touched:
                self._hands.replace(stage, model=row.get(MODEL, node.model))
            if touched - {MODEL}:
                settings = over(node.config, row)
                self._hands.replace(stage, settings=settings)
                with self._lock:
                    self._unsent[stage] = settings

    def _flush(self) -> None:
        with self._lock:
            for stage in tuple(self._unsent):
                if self._stopping.is_set():
                    return
                try:
                    self._hands.send_settings(stage, self._unsent[stage])
                except WouldBlock:
                    continue  # the next look sends it again
                del self._unsent[stage]

    def note(self, stage: str, event: Mapping[str, Any]) -> None:
        """Keep and tell what happened: a map with `what`, `at_ns` and more. From any thread."""
        self._events.append({"stage": stage, **event} if stage else event)
        self._hands.post(lambda: self._tell(stage, event))


def degrading(
    section: Any, where: str, nodes: Mapping[str, Node], models: Mapping[str, Mapping[str, Any]],
    gauge: Callable[[], Gauge], hands: Hands, tell: Tell,
) -> Degrading:  # fmt: skip
    """A pipeline's `ladder` (None: it has none) on this machine; ConfigError names a step that cannot be.

    That is one whose sensor this machine has not, unless the step is optional, or that a stage could not follow.
    """
    if section is None:
        return Degrading(None, gauge, nodes, hands, tell)
    from dpfedge.pipeline.ladder import Ladder
    from dpfedge.pipeline.rungs import check_rungs

    ladder, sensors = Ladder.of(section, where), gauge()
    check_rungs(ladder, nodes, models)
    fitted, left_out = ladder.fitted(sensors.names, sensors.power_modes)
    return Degrading(fitted, lambda: sensors, nodes, hands, tell, left_out)
