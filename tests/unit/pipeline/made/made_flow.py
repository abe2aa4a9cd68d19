# SPDX-License-Identifier: Apache-2.0
"""A drawn graph whose stages run in threads of this process, over the real engine, links and runners."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from dpfedge.backend.api import Budget
from dpfedge.errors import StageDied
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.flow import Flow
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.plan import Plan
from dpfedge.pipeline.prepare import PreparedFile
from dpfedge.pipeline.runner import StageRunner

CODE = """
import time
import numpy as np
from dpfedge.errors import DeadlineExceeded, StageError
from dpfedge.stage import Dim, Each, Kind, Port, Ports, Wait

NUMBERS = Port("f32", (Dim("n", 1, 64),))
WORD = Port("bytes", (Dim("bytes", 0, 64),), unit="utf-8")

class Double(Each):
    ports = Ports({"numbers": NUMBERS}, {"doubled": NUMBERS})
    def each(self, io, message):
        given = message.array()
        slot = yield from io.loan("doubled", given.shape, "f32")
        np.multiply(given, 2, out=slot.array)
        slot.send(given.shape[0], kind=Kind.DATA, turn=message.turn, captured_ns=message.captured_ns)

class Add(Each):
    ports = Ports({"numbers": NUMBERS, "word": WORD}, {"text": WORD})
    word = ""
    def each(self, io, message):
        if message.port == "word":
            self.word = message.text()
            if self.word == "fail":
                self.word = ""
                raise StageError("told to fail", stage="add")
            if self.word == "late":
                raise DeadlineExceeded("mine", stage="add")
            if self.word == "mumble":
                yield from io.text("sink", Kind.DONE, "", turn=0)
            while self.word == "hang":
                yield Wait.INPUT
            while self.word == "spin":
                yield Wait.STEP
            return
        yield from io.text("text", Kind.DATA, f"{self.word}{message.array().sum():.0f}", turn=message.turn)
    def flush(self, io):
        yield from io.text("text", Kind.DATA, "flushed", turn=0)
    def adjust(self, settings):
        self.word = settings["word"]
class Once(Double):
    idempotent = False
"""
THREE = np.array([1, 2, 3], np.float32)
SECTION: dict[str, Any] = {
    "stages": {"double": {"kind": "code:Double"}, "add": {"kind": "code:Add"}},
    "links": [{"from": "double.doubled", "to": "add.numbers"}],
}


class _Zygote:
    """Starts nothing."""

    def __init__(self) -> None:
        self.control, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = SimpleNamespace(pid=os.getpid())

    def stop(self, grace_s: float = 2.0) -> None:
        self.control.close()
        self._theirs.close()


class _Watcher:
    def post(self, action: Callable[[], None]) -> None:
        action()

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        return

    def stage_ready(self, name: str) -> None:
        return

    def stage_died(self, name: str) -> None:
        return

    def resting(self, keys: Any, stage: str) -> bool:
        return False


class Threads:
    """The engine, and one thread for each stage; `kill` ends one as a death would, `revive` starts it again."""

    def __init__(self, folder: Path, observe: Any = None, **changes: Any) -> None:
        (folder / "code.py").write_text(CODE)
        section = {**SECTION, **changes}
        graph = Graph.of(section, "test", folder=folder)
        board: Any = SimpleNamespace(id="host", placement={}, thermal={})
        zygote: Any = _Zygote()
        self.engine = Engine.start(
            PreparedFile(zygote, Plan("test", graph, board, section, None, folder)), _Watcher(), observe
        )
        self.events: list[Mapping[str, Any]] = []
        self._owner = 0
        self._running: dict[str, tuple[StageRunner, threading.Thread, int]] = {}
        self.flows: dict[int, Any] = {}
        for name in graph.names:
            self.revive(name)

    def revive(self, name: str) -> None:
        self._owner += 1
        node = self.engine.graph.node(name)
        stage = node.kind.load()(None, node.config, Budget())
        runner = StageRunner(
            stage,
            name,
            node.wiring,
            self.engine.arena,
            self._owner,
            budget_ns=node.budget_ns,
            report=self.events.append,
        )
        thread = threading.Thread(target=runner.run)
        self._running[name] = (runner, thread, self._owner)
        state = self.engine.supervisor.stages[name]
        state.state, state.served = "ready", True
        thread.start()

    def kill(self, name: str) -> None:
        """End the stage with what it holds, and tell everybody as the supervisor does."""
        runner, thread, owner = self._running.pop(name)
        runner.stop()
        thread.join()
        del runner
        self.engine.arena.reclaim(owner)
        for flow in tuple(self.flows.values()):
            flow.stage_died(name, StageDied("its process died", stage=name))

    def close(self) -> None:
        for runner, thread, _ in self._running.values():
            runner.stop()
            thread.join()
        self.engine.stop()


async def begin(graph: Threads, options: Any = None, *, deadline_s: float | None = None, urgency: int = 3) -> Flow:
    flow = Flow(
        graph.engine, options or {}, deadline_s=deadline_s, urgency=urgency,
        opened=graph.flows.__setitem__, closed=lambda key: graph.flows.pop(key, None),
    )  # fmt: skip
    await flow.start()
    return flow


async def texts(flow: Flow) -> list[str]:
    return [output.text async for output in flow.outputs() if output.port == "text"]


def run(test: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(test, 30))
