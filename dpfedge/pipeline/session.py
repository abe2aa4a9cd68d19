# SPDX-License-Identifier: Apache-2.0
"""A conversation: audio pushed in, turns of events out; it owns one request of the engine for as long as it lasts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from dpfedge.errors import DpfError, StageDied, UsageError, WouldBlock
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import Event, Failed, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.feed import Feed
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode

__all__ = ["Session", "push_audio"]

_SPACE_WAIT_S = 0.002
_HISTORY_MAX = 64


async def push_audio(engine: Engine, key: int, data: bytes | memoryview, *, last: bool = False) -> None:
    """Write `data` into the decoder's link piece by piece, waiting for space; StageDied when the request ended meanwhile."""
    view = memoryview(data).cast("B")
    piece = engine.audio_piece
    captured_ns = time.monotonic_ns()
    offsets = range(0, len(view), piece) if len(view) else range(1 if last else 0)
    for offset in offsets:
        final = last and offset + piece >= len(view)
        while not engine.send_audio(key, view[offset : offset + piece], captured_ns, last=final):
            if not engine.arena.requests.live(key):
                raise StageDied("the request ended while audio was sent", stage="decoder")
            await asyncio.sleep(_SPACE_WAIT_S)


class Session:
    """One long-lived conversation; made by `AsyncRuntime.converse`. Use it from one event loop."""

    def __init__(
        self, engine: Engine, options: Mapping[str, Mapping[str, Any]], route: tuple[str, ...], voice_rate: int
    ) -> None:
        self._engine, self._options, self._route = engine, options, route
        self._feed = Feed(Mode.CONVERSE, route, voice_rate, observe=self._observe)
        self._history: list[dict[str, str]] = list(options["llm"].get("history", ()))
        self._said: dict[int, list[str]] = {}
        self._asked: dict[int, str] = {}
        self._last_turn = 0
        self._answered = 0  # the turn answered last: a new utterance may have begun since
        self._answers: dict[int, dict[str, str]] = {}
        self._stale: set[str] = set()
        self._closed = False
        self.key = engine.open_request(self._feed)

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The conversation so far as chat messages, oldest first."""
        return tuple(self._history)

    async def start(self) -> None:
        """Tell every stage on the route; called once by the runtime."""
        for stage in self._route:
            await self._send_start(stage)

    async def push(self, pcm: bytes | memoryview) -> None:
        """Give the decoder more samples, in the session's format; any number of bytes."""
        self._check_open()
        await self._revive()
        await push_audio(self._engine, self.key, pcm)

    async def finish(self) -> None:
        """No more audio will come: what was heard is answered, then `events` ends."""
        self._check_open()
        await push_audio(self._engine, self.key, b"", last=True)

    async def commit(self) -> None:
        """End the utterance now, without waiting for silence."""
        await self._control("decoder", Kind.FLUSH, {})

    async def clear(self) -> None:
        """Forget what was heard since the last turn."""
        await self._control("decoder", Kind.CLEAR, {})

    async def say(self, text: str) -> None:
        """Add a typed message of the person; `respond` asks for its answer."""
        self._check_open()
        await self._revive()
        self._history.append({"role": "user", "content": text})
        await self._retry(lambda: self._engine.send_text("llm", self.key, Kind.TEXT, text, self._next_turn()))

    async def respond(self, options: Mapping[str, Any] | None = None) -> None:
        """Answer now, with what the conversation holds."""
        await self._control("llm", Kind.RESPOND, dict(options or {}))

    async def interrupt(self, heard: str | None = None) -> None:
        """Stop the answer being given; the history keeps only `heard` of it (None: what was sent so far)."""
        turn = self._answered
        self._engine.cancel_turns(self.key, turn + 1)
        words = "".join(self._said.pop(turn, [])) if heard is None else heard
        self._asked.pop(turn, None)
        self._remember(turn, words)
        await self._control("llm", Kind.HEARD, {"text": words}, turn)

    async def events(self) -> AsyncIterator[Event]:
        """Every event until the session is closed."""
        while (event := await self._feed.next()) is not None:
            yield event

    async def close(self) -> None:
        """End the session in every stage."""
        if not self._closed:
            self._closed = True
            self._engine.close_request(self.key)
            self._feed.finish()

    def drop(self) -> None:
        """Give back what nobody will read any more; after `close`."""
        self._feed.close()

    def stage_died(self, stage: str, error: DpfError) -> None:
        """Called on the loop when a stage of the route died: the turn fails, the stage is told again when it is back."""
        self._stale.add(stage)
        if self._said or self._asked or stage in ("decoder", "encoder"):
            self._feed.fail(error, turn=self._last_turn)
        self._said.clear()
        self._asked.clear()

    def _observe(self, event: Event) -> None:
        self._last_turn = max(self._last_turn, event.turn)
        if isinstance(event, Transcript) and event.text:
            self._answered = max(self._answered, event.turn)
            self._asked[event.turn] = event.text
            self._history.append({"role": "user", "content": event.text})
        elif isinstance(event, TextDelta):
            self._answered = max(self._answered, event.turn)
            self._said.setdefault(event.turn, []).append(event.text)
        elif isinstance(event, TurnDone | Failed):
            self._asked.pop(event.turn, None)
            if event.turn in self._said:
                self._remember(event.turn, "".join(self._said.pop(event.turn)))

    def _remember(self, turn: int, words: str) -> None:
        """Set what the assistant said in `turn`; an interrupt may shorten it afterwards."""
        if turn in self._answers:
            self._answers[turn]["content"] = words
        elif words:
            entry = {"role": "assistant", "content": words}
            self._answers = {turn: entry}
            self._history.append(entry)
            del self._history[:-_HISTORY_MAX]

    def _next_turn(self) -> int:
        # typed turns lie between the decoder's, which are multiples of the stride, so that numbers always rise
        self._last_turn += 1
        if self._last_turn % TURN_STRIDE == 0:
            self._last_turn += 1
        return self._last_turn

    async def _control(self, stage: str, kind: Kind, data: Mapping[str, Any], turn: int | None = None) -> None:
        self._check_open()
        if stage not in self._route:
            return
        await self._revive()
        number = self._next_turn() if turn is None and kind is Kind.RESPOND else turn or 0
        await self._retry(lambda: self._engine.send_map(stage, self.key, kind, data, number))

    async def _revive(self) -> None:
        """Tell restarted stages of this session again, with the history they lost."""
        for stage in tuple(self._stale):
            if self._engine.supervisor.stages[stage].state == "ready":
                self._stale.discard(stage)
                await self._send_start(stage)

    async def _send_start(self, stage: str) -> None:
        options = dict(self._options[stage])
        if stage == "llm":
            options["history"] = self._history
        await self._retry(lambda: self._engine.send_start(stage, self.key, options))

    async def _retry(self, send: Callable[[], None]) -> None:
        while True:
            try:
                send()
                return
            except WouldBlock:
                await asyncio.sleep(_SPACE_WAIT_S)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed", where="session", remedy="open a new one with converse()")
