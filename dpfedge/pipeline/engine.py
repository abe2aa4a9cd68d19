# SPDX-License-Identifier: Apache-2.0
"""A bound pipeline, running: a package and a board in, request places and links to the stages out.

It knows requests as keys and messages; what a turn means is `feed.py`, what a caller sees is `dpfedge.runtime`.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import cbor2

from dpfedge.backend.api import Array
from dpfedge.binding import Bound
from dpfedge.errors import PackageError, StageDied, StageError, UsageError, WouldBlock
from dpfedge.limits import REQUESTS_MAX, STAGE_START_MAX_S
from dpfedge.link import LAST, Arena, Producer
from dpfedge.pipeline.checking import Checking
from dpfedge.pipeline.degrading import Degrading, Gauge, Told, Watched, degrading
from dpfedge.pipeline.demoting import USUAL, Demoting
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.links import SINK
from dpfedge.pipeline.messages import crowded, send_array, send_bytes, send_map, send_text
from dpfedge.pipeline.observer import Observe, tapped_consumer, tapped_producer
from dpfedge.pipeline.parent import Zygote
from dpfedge.pipeline.plan import Plan
from dpfedge.pipeline.prepare import Prepared, PreparedFile
from dpfedge.pipeline.processes import memory_of
from dpfedge.pipeline.shortage import names_shortage
from dpfedge.pipeline.sink import Receiver, Sink
from dpfedge.pipeline.supervisor import Supervisor
from dpfedge.stage.api import Kind, Mode
from dpfedge.tensors import DTYPE_CODES

__all__ = ["Engine"]

_OWNER = 0x7FFF_FFFF  # this process on its own links; stage incarnations count up from 1


class Engine:
    """Owns the arena, the supervisor and the source links. Send from one thread; `stop`, `status` from any."""

    def __init__(
        self,
        zygote: Zygote,
        plan: Plan,
        watcher: Told,
        checking: Checking | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.plan, self._checking = plan, checking
        self.observer = None if observe is None else observe(plan)
        """Told of this runtime's requests; None when nobody looks."""
        self.graph, self._post, self._resting = plan.graph, watcher.post, watcher.resting
        self.degrading = self._degrading(watcher)
        self.demoting = Demoting(self.degrading.memory_free)
        self.arena = Arena.create(self.graph.links(), requests=REQUESTS_MAX)
        self.supervisor = Supervisor(zygote, self.graph, self.arena, Watched(watcher, self.degrading.note), self._idle)
        tap = None if self.observer is None else self.observer.tap
        self._source: Mapping[str, Producer] = {
            name: tapped_producer(self.arena.producer(f"source.{name}", _OWNER), tap) for name in self.graph.names
        }
        self._given: Mapping[tuple[str, str], Producer] = {
            place: tapped_producer(self.arena.producer(link, _OWNER), tap)
            for place, link in self.graph.drawn.given.items()
        }
        self._sink = Sink(self.arena, _ends(self.graph), _OWNER, lambda consumer: tapped_consumer(consumer, tap))
        self._pid = os.getpid()
        self._stopped = False
        self._stop_lock = threading.Lock()

    @classmethod
    @names_shortage
    def start(cls, prepared: Prepared | PreparedFile, watcher: Told, observe: Observe | None = None) -> Engine:
        """Fork every stage; returns before they are warm. Takes over `prepared`, also when it fails."""
        try:
            engine = cls(prepared.zygote, prepared.plan, watcher, prepared.checking, observe)
        except BaseException:
            prepared.close()
            raise
        try:
            engine._launch()
        except BaseException:
            engine.stop()
            raise
        return engine

    def _launch(self) -> None:
        plan = self.plan
        start_s = self.graph.budgets.start_s or STAGE_START_MAX_S
        self.supervisor.start(plan.files(), plan.setup(), plan.board.placement, plan.heaviest_first(), start_s)
        self._sink.start()
        self.degrading.start()

    def _degrading(self, watcher: Told) -> Degrading:
        """The pipeline's ladder on this machine; ConfigError names a step that cannot be."""
        nodes = {node.name: node for node in self.graph.stages}
        models = {} if self.plan.bound is None else _models(self.plan.bound)
        return degrading(self.graph.ladder, self.plan.name, nodes, models, self._sensors, self, watcher.happened)

    def _sensors(self) -> Gauge:
        from dpfedge.pipeline.pressure import Sensors, sensor_root

        return Sensors(sensor_root(), self.plan.board)

    @property
    def bound(self) -> Bound:
        """The package this was opened with; UsageError when a pipeline file names none."""
        if self.plan.bound is None:
            raise UsageError("the pipeline has no package", where=self.plan.name, remedy="add package: to its file")
        return self.plan.bound

    def _idle(self, name: str) -> bool:
        """Whether no request is open, or only those that lose nothing: sessions between two turns."""
        keys = self.arena.requests.keys()
        return not keys or self._resting(keys, name)

    def wait_ready(self) -> None:
        """Block until every stage is warm and every byte of the package was checked.

        StageError names a stage that cannot be, or tells that `stop` came first; PackageError names what is damaged.
        """
        try:
            self.supervisor.wait_ready()
        except StageError:
            self._wait_checked()  # damaged weights are the reason when a stage cannot load them
            raise
        self._wait_checked()
        # the first audio must not wait for this import, and the stages' start must not share its processor with it
        threading.Thread(target=importlib.import_module, args=("numpy",), name="dpf-numpy", daemon=True).start()

    def _wait_checked(self) -> None:
        if self._checking is None:
            return
        try:
            self._checking.wait()
        except PackageError:
            if self._stopped:
                raise StageError("the pipeline was stopped while it started", stage=self.graph.names[0]) from None
            raise

    def ready(self) -> bool:
        """Whether every stage is warm and nothing of the package is left to check."""
        return self._checked and self.supervisor.ready()

    @property
    def _checked(self) -> bool:
        return self._checking is None or self._checking.passed

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """What each stage says of itself."""
        return {name: state.facts for name, state in self.supervisor.stages.items()}

    def urgency(self, wanted: int) -> int:
        """What a new request of that urgency gets: while memory is low, what is less urgent than usual goes last.

        Its START and `open_request` are given the answer.
        """
        return self.demoting.urgency(wanted)

    def open_request(self, receiver: Receiver, urgency: int = USUAL) -> int:
        """A place in the request table; Busy when every place is taken. `urgency` as `self.urgency` gave it."""
        key = self.arena.requests.open(urgency)
        self._sink.attach(key, receiver)
        return key

    def close_request(self, key: int) -> None:
        """End the request in every stage and free its place; its key is stale from now on."""
        if os.getpid() != self._pid:  # a forked child: the request is its parent's
            return
        self._sink.detach(key)
        self.arena.requests.close(key)
        self.arena.requests.cancel(key)  # rings every stage; after the close, so that all of them see it
        if self.observer is not None:
            self.observer.closed(key)

    def live(self, key: int) -> bool:
        """Whether the request is open and somebody can still serve it."""
        return not self._stopped and self.arena.requests.live(key)

    def cancel_turns(self, key: int, before: int) -> None:
        """Cancel every turn of the request below `before` in every stage."""
        self.arena.requests.cancel(key, before)
        if self.observer is not None:
            self.observer.cancelled(key, before)

    def check_up(self, mode: Mode) -> tuple[str, ...]:
        """The route of a mode; StageError if a stage on it is down, StageDied before it served for the first time.

        A stage that is being restarted is up: what it is sent waits in its link for the process that comes.
        """
        if os.getpid() != self._pid:
            remedy = "open a Runtime in this process"
            raise UsageError("the runtime belongs to the process that opened it", where="runtime", remedy=remedy)
        if self._stopped:
            raise UsageError("the runtime is closed", where="runtime", remedy="open it again")
        route = self.graph.route(mode)
        if not self._checked:
            raise StageDied("the package is being checked", stage=route[0], remedy="try again in a moment")
        for name in route:
            state = self.supervisor.stages[name]
            if state.state == "failed":
                raise StageError(
                    "the stage is down: it died too often", stage=name, remedy="it is tried again within a minute"
                )
            if not state.served:
                raise StageDied(f"the stage is {state.state}", stage=name, remedy="try again in a moment")
        return route

    def send_to(self, place: tuple[str, str], key: int, data: Array | bytes, **fields: Any) -> None:
        """One message into a port that the caller feeds, written straight into its slot; WouldBlock when it is full.

        `data`: a text as UTF-8, or an array of the port's dtype. `fields` as in `send_bytes`.
        """
        producer = self._given[place]
        if isinstance(data, bytes):
            send_bytes(producer, key, Kind.DATA, data, **fields)
        else:
            send_array(producer, key, Kind.DATA, data, **fields)

    def end_of(self, place: tuple[str, str], key: int, kind: Kind, **fields: Any) -> None:
        """END or FLUSH of a port that the caller feeds; WouldBlock when its link is full."""
        send_bytes(self._given[place], key, kind, b"", last=kind is Kind.END, **fields)

    def send_settings(self, stage: str, settings: Mapping[str, Any]) -> None:
        """What a stage is to do otherwise from now on; WouldBlock when its link is full."""
        send_map(self._source[stage], 0, Kind.SETTINGS, settings)

    def replace(self, name: str, *, model: str | None = None, settings: Mapping[str, Any] | None = None) -> None:
        """From now on, and after a death, a stage runs with these; see `Supervisor.replace`."""
        self.supervisor.replace(name, model=model, settings=settings)

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` on the thread that sends."""
        self._post(action)

    def send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        """A request's first message to a stage; WouldBlock when its link is full, InputError when it is too long."""
        send_map(self._source[stage], key, Kind.START, options)

    def fits(self, stage: str, options: Mapping[str, Any]) -> bool:
        """Whether a map is short enough for one message to the stage."""
        return len(cbor2.dumps(dict(options))) <= self._source[stage].slot_bytes

    def send_text(self, stage: str, key: int, kind: Kind, text: str, turn: int) -> None:
        """A text message to a stage; WouldBlock when its link is full, InputError when it is too long."""
        send_text(self._source[stage], key, kind, text, turn=turn)

    def send_map(self, stage: str, key: int, kind: Kind, data: Mapping[str, Any], turn: int) -> None:
        """A map message to a stage; WouldBlock when its link is full, InputError when it is too long."""
        send_map(self._source[stage], key, kind, data, turn=turn)

    def send_audio(
        self, key: int, data: memoryview, captured_ns: int, *, last: bool = False, bulk: bool = False
    ) -> None:
        """Write one piece of audio into the decoder's link; WouldBlock when it is full, for `bulk` when half of it is.

        At most `audio_piece` bytes.
        """
        producer = self._source["decoder"]
        if bulk and crowded(producer):
            raise WouldBlock("half of the link is left to conversations", where=f"link {producer.link}")
        loan = producer.loan(len(data))
        loan.view[: len(data)] = data
        producer.send(
            loan, kind=int(Kind.AUDIO), request=key, dtype=DTYPE_CODES["bytes"], shape=(len(data),), nbytes=len(data),
            captured_ns=captured_ns, flags=LAST if last else 0,
        )  # fmt: skip

    @property
    def audio_piece(self) -> int:
        """The most bytes one `send_audio` takes."""
        return self._source["decoder"].slot_bytes

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        """Stages, links, and this process, for people and metrics; memory figures take the kernel milliseconds."""

        def held(pid: int) -> dict[str, int]:
            return memory_of(pid) if memory else {}

        placed = self.plan.placed()
        stages = {
            name: {
                "state": state.state, "pid": state.pid, "restarts": state.restarts, "load_ms": state.load_ms,
                "warm_ms": state.warm_ms, "facts": dict(state.facts), "process": state.unit,
                "refused": list(state.refused), "failure": state.error and dict(state.error),
                "placed": placed.get(name), **held(state.pid),
            }
            for name, state in self.supervisor.stages.items()
        }  # fmt: skip
        own = {"pid": os.getpid(), **held(os.getpid())}
        zygote = {"pid": self.supervisor.zygote_pid, **held(self.supervisor.zygote_pid)}
        bound = self.plan.bound
        sidecar, stale = (bound.sidecar, [str(line) for line in bound.stale]) if bound is not None else (None, [])
        seal = {"path": None if sidecar is None else str(sidecar.package.path), "stale": stale}
        arena = {"nbytes": self.arena.nbytes, "sealed": self.arena.sealed}
        return {
            "stages": stages, "server": own, "zygote": zygote, "links": self.link_stats(), "arena": arena, "seal": seal,
            "degrade": self.degrading.status(), "memory": self.demoting.figures(),
        }  # fmt: skip

    def link_stats(self) -> dict[str, dict[str, int]]:
        """Counters of every link; empty after `stop`."""
        with self._stop_lock:
            if self._stopped:
                return {}
            return {name: stats.as_dict() for name, stats in self.arena.stats().items()}

    def stop(self) -> None:
        """End every stage and give all memory back; a second call, or one in a forked child, does nothing."""
        if os.getpid() != self._pid:
            return
        with self._stop_lock:
            stopped, self._stopped = self._stopped, True
        if not stopped:
            self.degrading.stop()
            self.supervisor.stop()
            self._sink.stop()
            self.arena.close()
            if self._checking is not None:
                self._checking.stop()
            if self.plan.bound is not None:
                self.plan.bound.close()


def _models(bound: Bound) -> dict[str, Mapping[str, Any]]:
    """Name → config of the models that a stage may have here."""
    models = bound.package.manifest.models
    return {name: models[name].config for name in bound.models}


def _ends(graph: Graph) -> list[tuple[str, str, str]]:
    """(stage, port, link) of everything that leads to the caller, each stage's report behind what it reports on."""
    taken = [(stage, port, link) for link, (stage, port) in graph.drawn.taken.items()]
    return [
        end for name in graph.names for end in (*(one for one in taken if one[0] == name), (name, "", f"{name}.{SINK}"))
    ]
