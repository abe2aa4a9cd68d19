# SPDX-License-Identifier: Apache-2.0
"""A toy engine that answers by itself, and a runtime over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any

from dpfedge.errors import Busy, StageDied, UsageError, WouldBlock
from dpfedge.pipeline.graph import ROUTES
from dpfedge.runtime import AsyncRuntime
from dpfedge.runtime.dispatcher import Dispatcher
from dpfedge.stage.api import Kind, Mode

DIED = StageDied("died", stage="llm")


class Words:
    """A message of plain data."""

    def __init__(self, kind: Kind, data: Any, turn: int) -> None:
        self.kind, self.turn, self._data = kind, turn, data

    def map(self) -> Any:
        return self._data

    def text(self) -> str:
        return str(self._data)

    def release(self) -> None:
        return


class ToyEngine:
    """Notes what is sent; `answers` maps a stage to the messages it gives for each START it gets."""

    audio_piece = 4

    def __init__(self, places: int = 3) -> None:
        self.sent: list[tuple[str, Kind, Any]] = []
        self.answers: dict[str, list[tuple[Kind, Any, int]]] = {}
        self.full: set[str] = set()
        self.receivers: dict[int, Any] = {}
        self.stopped, self._places, self._last, self.observer = 0, places, 0, None
        self.supervisor = SimpleNamespace(ready=lambda: not self.stopped)
        manifest = SimpleNamespace(name="toy", version="1", pipeline={"stages": {}})
        self.bound = SimpleNamespace(
            package=SimpleNamespace(manifest=manifest), board=SimpleNamespace(id="host", placement={})
        )

    def facts(self) -> dict[str, Mapping[str, Any]]:
        return {"voice": {"rate": 8000}}

    def check_up(self, mode: Mode) -> tuple[str, ...]:
        if self.stopped:
            raise UsageError("the runtime is closed")
        return ROUTES[mode]

    def urgency(self, wanted: int) -> int:
        return wanted

    def open_request(self, receiver: Any, urgency: int = 3) -> int:
        if len(self.receivers) == self._places:
            raise Busy("full")
        self._last += 65536
        self.receivers[self._last] = receiver
        return self._last

    def close_request(self, key: int) -> None:
        self.receivers.pop(key, None)

    def live(self, key: int) -> bool:
        return key in self.receivers

    def cancel_turns(self, key: int, before: int) -> None:
        return

    def fits(self, stage: str, options: Mapping[str, Any]) -> bool:
        return True

    def _note(self, stage: str, kind: Kind, data: Any) -> None:
        if stage in self.full:
            raise WouldBlock("full")
        self.sent.append((stage, kind, data))

    def send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        self._note(stage, Kind.START, options)
        for kind, data, turn in self.answers.get(stage, ()):
            self.say(key, stage, kind, data, turn)

    def send_audio(
        self, key: int, data: memoryview, captured_ns: int, *, last: bool = False, bulk: bool = False
    ) -> None:
        self._note("decoder", Kind.AUDIO, (bytes(data), last))

    def say(self, key: int, stage: str, kind: Kind, data: Any, turn: int = 1) -> None:
        self.receivers[key].receive(stage, Words(kind, data, turn), 5, False)

    def status(self, *, memory: bool = True) -> dict[str, Any]:
        return {"stages": {}}

    def wait_ready(self) -> None:
        return

    def stop(self) -> None:
        self.stopped += 1


class Car:
    """A runtime and its engine."""

    def __init__(self, **options: Any) -> None:
        self.engine = ToyEngine(**options)
        self.dispatcher = Dispatcher(asyncio.get_running_loop())
        self.runtime = AsyncRuntime(self.engine, self.dispatcher)  # type: ignore[arg-type]

    def nothing_open(self) -> bool:
        return not self.engine.receivers and not self.dispatcher.open


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(main())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


CHAT = [(Kind.TEXT, "hi", 1), (Kind.DONE, {"finish": "stop", "clauses": 0}, 1)]
