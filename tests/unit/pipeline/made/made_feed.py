# SPDX-License-Identifier: Apache-2.0
"""Messages of plain data, and a feed with the stages that talk to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from dpfedge.errors import StageDied
from dpfedge.pipeline.events import (
    Event,
)
from dpfedge.pipeline.feed import Feed
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode

ALL = ("decoder", "encoder", "llm", "voice")
ONE, TWO = TURN_STRIDE, 2 * TURN_STRIDE
DIED = StageDied("died", stage="somebody")


class Words:
    """A message of plain data that counts its releases."""

    def __init__(self, kind: Kind, data: Any = None, turn: int = 0) -> None:
        self.kind, self.turn, self._data, self.released = kind, turn, data, 0

    def map(self) -> Any:
        return {} if self._data is None else self._data

    def text(self) -> str:
        return str(self._data)

    def array(self) -> Any:
        return np.zeros(4, np.int16)

    def release(self) -> None:
        self.released += 1


class Script:
    """A feed and what the stages say to it."""

    def __init__(self, mode: Mode, route: tuple[str, ...] = ALL, **options: Any) -> None:
        self.feed = Feed(mode, route, 22050, **options)
        self.messages: list[Words] = []

    def say(self, stage: str, kind: Kind, turn: int = 0, data: Any = None, scarce: bool = False) -> None:
        self.messages.append(Words(kind, data, turn))
        self.feed.receive(stage, self.messages[-1], 5, scarce)  # type: ignore[arg-type]

    def speech(self, turn: int) -> None:
        self.say("decoder", Kind.SPEECH_STARTED, turn, {"at_ms": 10})

    def endpoint(self, turn: int) -> None:
        self.say("decoder", Kind.SPEECH_STOPPED, turn, {"at_ms": 90, "start_ms": 10, "reason": "silence"})
        self.say("decoder", Kind.DONE, turn, {"audio_ms": 80})

    def words(self, turn: int, text: str = "hello") -> None:
        self.say("encoder", Kind.TEXT, turn, {"text": text, "start_ms": 10, "end_ms": 90})
        self.say("encoder", Kind.DONE, turn, {"tokens": 3})

    def answer(self, turn: int, *, clauses: int = 1) -> None:
        self.say("llm", Kind.TEXT, turn, "hi")
        self.say("llm", Kind.DONE, turn, {"finish": "length", "clauses": clauses})

    async def events(self, count: int | None = None) -> list[Event]:
        """The next `count` events, or all of those that are there."""
        await asyncio.sleep(0)
        found: list[Event] = []
        while len(found) != count and (count is not None or not self.feed._items.empty()):
            event = await self.feed.next()
            if event is None:
                break
            found.append(event)
        return found

    async def ended(self) -> bool:
        await asyncio.sleep(0)
        return not self.feed._items.empty() and await self.feed.next() is None


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(main())


def kinds(events: list[Event]) -> list[tuple[type[Event], int]]:
    return [(type(event), event.turn) for event in events]
