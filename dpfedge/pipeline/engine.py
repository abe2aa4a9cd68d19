# SPDX-License-Identifier: Apache-2.0
"""A bound pipeline, running: a package and a board in, request places and links to the stages out.

It knows requests as keys and messages; what a turn means is `turns.py`, what a caller sees is `dpfedge.runtime`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from dpfedge.binding import Bound, bind_here
from dpfedge.errors import StageDied, StageError, WouldBlock
from dpfedge.limits import REQUESTS_MAX
from dpfedge.link import LAST, Arena, Producer
from dpfedge.package import open_package
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.io import send_map, send_text
from dpfedge.pipeline.processes import memory_of
from dpfedge.pipeline.sink import Receiver, Sink
from dpfedge.pipeline.supervisor import Supervisor, Watcher, Zygote
from dpfedge.stage.api import Kind, Mode
from dpfedge.tensors import DTYPE_CODES

__all__ = ["Engine"]

_OWNER = 0x7FFF_FFFF  # this process on its own links; stage incarnations count up from 1
_READY_TIMEOUT_S = 120.0  # a cold 64 GB board maps 4 GB of weights from slow flash in under a minute


class Engine:
    """Owns the arena, the supervisor and the source links. Use its methods from one thread."""

    def __init__(self, zygote: Zygote, bound: Bound, watcher: Watcher) -> None:
        self.bound = bound
        self.graph = Graph.from_manifest(bound.package.manifest.pipeline, str(bound.package.path))
        self.arena = Arena.create(self.graph.links(), requests=REQUESTS_MAX)
        self.supervisor = Supervisor(zygote, self.graph, self.arena, watcher)
        self._source: Mapping[str, Producer] = {
            name: self.arena.producer(f"source.{name}", _OWNER) for name in self.graph.names
        }
        self._sink = Sink(self.arena, self.graph.names, _OWNER)

    @classmethod
    def start(cls, package: str | Path, *, board: str, check: Literal["fast", "full"], watcher: Watcher) -> Engine:
        """Bind and fork every stage; returns before they are warm. BindError, BoardError, PackageError as found."""
        zygote = Zygote()
        try:
            bound = bind_here(open_package(Path(package), check=check), board)
            engine = cls(zygote, bound, watcher)
        except BaseException:
            zygote.stop()
            raise
        engine._launch()
        return engine

    def _launch(self) -> None:
        fd = os.open(self.bound.package.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.supervisor.start(fd, self.bound.board.id, self.bound.board.placement)
        finally:
            os.close(fd)
        self._sink.start()

    def wait_ready(self) -> None:
        """Block until every stage is warm; StageError names one that cannot be."""
        self.supervisor.wait_ready(_READY_TIMEOUT_S)

    def facts(self) -> dict[str, Mapping[str, Any]]:
        """What each stage says of itself."""
        return {name: state.facts for name, state in self.supervisor.stages.items()}

    def open_request(self, receiver: Receiver, urgency: int = 3) -> int:
        """A place in the request table; Busy when every place is taken."""
        key = self.arena.requests.open(urgency)
        self._sink.attach(key, receiver)
        return key

    def close_request(self, key: int) -> None:
        """End the request in every stage and free its place; its key is stale from now on."""
        self._sink.detach(key)
        self.arena.requests.cancel(key)
        self.arena.requests.close(key)

    def cancel_turns(self, key: int, before: int) -> None:
        """Cancel every turn of the request below `before` in every stage."""
        self.arena.requests.cancel(key, before)

    def check_up(self, mode: Mode) -> tuple[str, ...]:
        """The route of a mode; StageError if a stage on it is down for good, StageDied while it restarts."""
        route = self.graph.route(mode)
        for name in route:
            state = self.supervisor.stages[name].state
            if state == "failed":
                raise StageError(
                    "the stage is down; its restarts are used up", stage=name, remedy="restart the server, see its log"
                )
            if state != "ready":
                raise StageDied(f"the stage is {state}", stage=name, remedy="try again in a moment")
        return route

    def send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        """The first message of a request on a stage; WouldBlock when its link is full."""
        send_map(self._source[stage], key, Kind.START, options)

    def send_text(self, stage: str, key: int, kind: Kind, text: str, turn: int) -> None:
        """A text message to a stage; WouldBlock when its link is full."""
        send_text(self._source[stage], key, kind, text, turn=turn)

    def send_map(self, stage: str, key: int, kind: Kind, data: Mapping[str, Any], turn: int) -> None:
        """A map message to a stage; WouldBlock when its link is full."""
        send_map(self._source[stage], key, kind, data, turn=turn)

    def send_audio(self, key: int, data: memoryview, captured_ns: int, *, last: bool = False) -> bool:
        """Write one piece of audio into the decoder's link; False when it is full. At most `audio_piece` bytes."""
        producer = self._source["decoder"]
        try:
            loan = producer.loan(max(1, len(data)))
        except WouldBlock:
            return False
        loan.view[: len(data)] = data
        producer.send(
            loan, kind=int(Kind.AUDIO), request=key, dtype=DTYPE_CODES["bytes"], shape=(len(data),), nbytes=len(data),
            captured_ns=captured_ns, flags=LAST if last else 0,
        )  # fmt: skip
        return True

    @property
    def audio_piece(self) -> int:
        """The most bytes one `send_audio` takes."""
        return self.arena.links["source.decoder"].slot_bytes

    def status(self) -> dict[str, Any]:
        """Stages, links, and this process, for people and metrics."""
        stages = {
            name: {
                "state": state.state, "pid": state.pid, "restarts": state.restarts, "load_ms": state.load_ms,
                "warm_ms": state.warm_ms, **memory_of(state.pid),
            }
            for name, state in self.supervisor.stages.items()
        }  # fmt: skip
        own = {"pid": os.getpid(), **memory_of(os.getpid())}
        zygote = {"pid": self.supervisor.zygote_pid, **memory_of(self.supervisor.zygote_pid)}
        return {"stages": stages, "server": own, "zygote": zygote, "links": self.link_stats()}

    def link_stats(self) -> dict[str, dict[str, int]]:
        """Counters of every link."""
        return {name: stats.as_dict() for name, stats in self.arena.stats().items()}

    def stop(self) -> None:
        """End every stage and give all memory back."""
        self.supervisor.stop()
        self._sink.stop()
        self.arena.close()
        self.bound.package.close()
