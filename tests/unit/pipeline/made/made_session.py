# SPDX-License-Identifier: Apache-2.0
"""A toy engine that notes what is sent, and a session over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dpfedge.errors import StageDied, WouldBlock
from dpfedge.pipeline.events import TextDelta, Transcript
from dpfedge.pipeline.session import Session
from dpfedge.stage.api import TURN_STRIDE, Kind

ALL = ("decoder", "encoder", "llm", "voice")
KEY, ONE, TWO = 65536, TURN_STRIDE, 2 * TURN_STRIDE
DIED = StageDied("died", stage="llm")


class ToyEngine:
    """Notes what is sent; links named in `full` have no slot."""

    audio_piece = 10

    def __init__(self) -> None:
        self.sent: list[tuple[str, Kind, int, Any]] = []
        self.full: set[str] = set()
        self.open: set[int] = set()
        self.cancelled = 0
        self.longest = 10_000

    def urgency(self, wanted: int) -> int:
        return wanted

    def open_request(self, receiver: Any, urgency: int = 3) -> int:
        self.open.add(KEY)
        return KEY

    def close_request(self, key: int) -> None:
        self.open.discard(key)

    def live(self, key: int) -> bool:
        return key in self.open

    def cancel_turns(self, key: int, before: int) -> None:
        self.cancelled = before

    def _note(self, stage: str, kind: Kind, turn: int, data: Any) -> None:
        if stage in self.full:
            raise WouldBlock("full")
        self.sent.append((stage, kind, turn, data))

    def send_start(self, stage: str, key: int, options: Mapping[str, Any]) -> None:
        self._note(stage, Kind.START, 0, options)

    def send_text(self, stage: str, key: int, kind: Kind, text: str, turn: int) -> None:
        self._note(stage, kind, turn, text)

    def send_map(self, stage: str, key: int, kind: Kind, data: Mapping[str, Any], turn: int) -> None:
        self._note(stage, kind, turn, data)

    def send_audio(
        self, key: int, data: memoryview, captured_ns: int, *, last: bool = False, bulk: bool = False
    ) -> None:
        self._note("decoder", Kind.AUDIO, 0, (bytes(data), last))

    def fits(self, stage: str, options: Mapping[str, Any]) -> bool:
        return len(str(options)) <= self.longest

    def to(self, stage: str, kind: Kind) -> list[Any]:
        return [data for name, what, _, data in self.sent if (name, what) == (stage, kind)]


class Talk:
    """A session over a toy engine."""

    def __init__(self, route: tuple[str, ...] = ALL, **llm: Any) -> None:
        self.engine, self.closed = ToyEngine(), [0]
        options: dict[str, dict[str, Any]] = {stage: {"mode": 4} for stage in route}
        options["llm"] |= llm
        self.session = Session(self.engine, options, route, 22050, self.closed.append)  # type: ignore[arg-type]

    def happened(self, *events: Any) -> None:
        for event in events:
            self.session._feed._put(event)

    def turn(self, number: int, question: str, *words: str) -> None:
        self.happened(Transcript(number, 0, question, 0, 1), *(TextDelta(number, 0, word) for word in words))


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(), 30)

    asyncio.run(main())
