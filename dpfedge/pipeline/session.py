# SPDX-License-Identifier: Apache-2.0
"""A conversation: audio pushed in, turns of events out; it owns one request of the engine for as long as it lasts.

It outlives its stages: one that was restarted is told the request again, with the history it lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from dpfedge.errors import Cancelled, DpfError, UsageError, WouldBlock
from dpfedge.pipeline.engine import Engine
from dpfedge.pipeline.events import Event, Failed, TextDelta, Transcript, TurnDone
from dpfedge.pipeline.feed import Feed
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode

__all__ = ["Session", "push_audio", "when_space"]

_SPACE_WAIT_S = 0.002
_HISTORY_MAX = 64


async def when_space(engine: Engine, key: int, send: Callable[[], None]) -> None:
    """Call `send` until its link has a slot for it; Cancelled when the request ended meanwhile."""
    while True:
        try:
            return send()
        except WouldBlock:
            if not engine.live(key):
                raise Cancelled("the request ended before all of it was sent", stage="runtime") from None
            await asyncio.sleep(_SPACE_WAIT_S)


async def push_audio(
    engine: Engine, key: int, data: bytes | memoryview, *, last: bool = False, bulk: bool = False
) -> None:
    """Write `data` into the decoder's link piece by piece, waiting for space; Cancelled when the request ended.

    `bulk` audio, which nobody speaks at this moment, leaves half of the link to those who do.
    """
    view = memoryview(data).cast("B")
    size, captured_ns = engine.audio_piece, time.monotonic_ns()
    pieces = [view[offset : offset + size] for offset in range(0, len(view), size)] or ([view] if last else [])
    for index, piece in enumerate(pieces):
        final = last and index == len(pieces) - 1
        await when_space(engine, key, partial(engine.send_audio, key, piece, captured_ns, last=final, bulk=bulk))


class Session:
    """One long-lived conversation; made by `AsyncRuntime.converse`. Use it from one event loop.

    `closed` is called once, with the session's key, when it ends.
    """

    def __init__(
        self,
        engine: Engine,
        options: Mapping[str, Mapping[str, Any]],
        route: tuple[str, ...],
        voice_rate: int,
        closed: Callable[[int], object] = lambda key: None,
    ) -> None:
        self._engine, self._options, self._route, self._on_closed = engine, options, route, closed
        one_file = options["decoder"].get("format", {}).get("encoding") == "container"
        self._feed = Feed(Mode.CONVERSE, route, voice_rate, observe=self._observe, one_file=one_file)
        self._history: list[dict[str, str]] = list(options["llm"].get("history", ()))
        self._said: dict[int, list[str]] = {}
        self._answers: dict[int, dict[str, str]] = {}
        self._last_turn = 0
        self._answered = 0  # the turn answered last: a new utterance may have begun since
        self._interrupted = 0
        self._stale: set[str] = set()
        self._sending = {stage: asyncio.Lock() for stage in route}  # what is sent to one stage keeps its order
        self._telling: set[asyncio.Task[None]] = set()
        self._finished = self._closed = False
        self.key = engine.open_request(self._feed)

    def tell(self, ended: Callable[[TurnDone | Failed], None]) -> None:
        """Call `ended` for every turn that is complete or failed, beside the events; it must return at once."""
        self._feed.ended = ended

    @property
    def history(self) -> Sequence[Mapping[str, str]]:
        """The conversation so far as chat messages, oldest first."""
        return tuple(self._history)

    async def start(self) -> None:
        """Tell every stage on the route; called once by the runtime."""
        for stage in self._route:
            async with self._sending[stage]:
                await self._send_start(stage)

    async def push(self, pcm: bytes | memoryview) -> None:
        """Give the decoder more samples, in the session's format; any number of bytes."""
        self._check_input()
        async with self._sending["decoder"]:
            await self._revive("decoder")
            await push_audio(self._engine, self.key, pcm)

    async def finish(self) -> None:
        """No more audio will come: what was heard is answered, then `events` ends."""
        self._check_input()
        async with self._sending["decoder"]:
            await self._revive("decoder")
            self._finished = True
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
        turn = self._next_turn()
        async with self._sending["llm"]:
            await self._revive("llm")
            await self._when_space(lambda: self._engine.send_text("llm", self.key, Kind.TEXT, text, turn))
            self._keep({"role": "user", "content": text})

    async def respond(self, options: Mapping[str, Any] | None = None) -> None:
        """Answer now, with what the conversation holds."""
        self._check_open()
        turn = self._next_turn()
        self._answered = max(self._answered, turn)
        await self._control("llm", Kind.RESPOND, dict(options or {}), turn)
        self._feed.expect(turn)

    async def interrupt(self, heard: str | None = None) -> None:
        """Stop the answer being given; the history keeps only `heard` of it (None: what was sent so far)."""
        turn = self._interrupted = self._answered
        if not turn:
            return
        self._engine.cancel_turns(self.key, turn + 1)
        said = "".join(self._said.pop(turn, []))
        words = said if heard is None else heard
        self._remember(turn, words)
        await self._control("llm", Kind.HEARD, {"text": words}, turn)

    async def events(self) -> AsyncIterator[Event]:
        """Every event until the session is closed."""
        while (event := await self._feed.next()) is not None:
            yield event

    async def close(self) -> None:
        """End the session in every stage and free its place; `events` gives what happened before, then ends."""
        if self._closed:
            return
        self._closed = True
        self._engine.close_request(self.key)
        self._feed.finish()
        for task in self._telling:
            task.cancel()
        self._on_closed(self.key)

    def drop(self) -> None:
        """Give back what nobody will read any more; after `close`."""
        self._feed.close()

    def resting(self, stage: str) -> bool:
        """Whether `stage` may be started anew and nothing of a turn is lost; from any thread.

        Never the decoder: nobody else knows what it has heard.
        """
        return stage not in self._route or (stage != "decoder" and self._feed.resting)

    def stage_died(self, stage: str, error: DpfError) -> None:
        """Called on the loop when a stage died: its turns fail, and the process after it is told of this session."""
        if stage not in self._route or self._closed:
            return
        lost = self._feed.stage_died(stage, error)
        if lost and stage != "decoder":
            self._engine.cancel_turns(self.key, lost + 1)
        self._stale.add(stage)
        task = asyncio.ensure_future(self._tell_again(stage))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def fail(self, error: DpfError) -> None:
        """Called on the loop when the session can go on no more."""
        self._feed.fail(error)
        self._feed.finish()

    # --- what the session remembers ---

    def _observe(self, event: Event) -> None:
        self._last_turn = max(self._last_turn, event.turn)
        if isinstance(event, Transcript) and event.text:
            self._answered = max(self._answered, event.turn)
            self._keep({"role": "user", "content": event.text})
        elif isinstance(event, TextDelta) and event.turn > self._interrupted:
            self._answered = max(self._answered, event.turn)
            self._said.setdefault(event.turn, []).append(event.text)
        elif isinstance(event, TurnDone | Failed) and event.turn in self._said:
            self._remember(event.turn, "".join(self._said.pop(event.turn)))

    def _remember(self, turn: int, words: str) -> None:
        """Set what the assistant said in `turn`; an interrupt may shorten it afterwards."""
        if turn in self._answers:
            self._answers[turn]["content"] = words
        elif words:
            entry = {"role": "assistant", "content": words}
            self._answers = {turn: entry}
            self._keep(entry)

    def _keep(self, entry: dict[str, str]) -> None:
        self._history.append(entry)
        del self._history[:-_HISTORY_MAX]

    def _next_turn(self) -> int:
        # typed turns lie between the decoder's, which are multiples of the stride, so that numbers always rise
        self._last_turn += 1
        if self._last_turn % TURN_STRIDE == 0:
            self._last_turn += 1
        return self._last_turn

    # --- what the stages are told ---

    async def _control(self, stage: str, kind: Kind, data: Mapping[str, Any], turn: int = 0) -> None:
        self._check_open()
        if stage not in self._route:
            return
        async with self._sending[stage]:
            await self._revive(stage)
            await self._when_space(lambda: self._engine.send_map(stage, self.key, kind, data, turn))

    async def _tell_again(self, stage: str) -> None:
        async with self._sending[stage]:
            try:
                await self._revive(stage)
            except Cancelled:
                return  # the session was closed

    async def _revive(self, stage: str) -> None:
        """Tell a stage of this session again, with what its process knew; the message waits there for the next one."""
        if stage not in self._stale:
            return
        await self._send_start(stage)
        if stage == "decoder" and self._finished:
            await push_audio(self._engine, self.key, b"", last=True)
        self._stale.discard(stage)

    async def _send_start(self, stage: str) -> None:
        options = dict(self._options[stage])
        if stage == "llm":
            options["history"] = self._fitting(options)
        elif stage == "decoder":
            options["turn"] = self._last_turn - self._last_turn % TURN_STRIDE
        await self._when_space(lambda: self._engine.send_start(stage, self.key, options))

    def _fitting(self, options: Mapping[str, Any]) -> list[dict[str, str]]:
        """The history, without the oldest messages if they are more than a message may hold."""
        history = list(self._history)
        while history and self._last_turn and not self._engine.fits("llm", {**options, "history": history}):
            del history[0]
        return history

    async def _when_space(self, send: Callable[[], None]) -> None:
        await when_space(self._engine, self.key, send)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed", where="session", remedy="open a new one with converse()")

    def _check_input(self) -> None:
        self._check_open()
        if self._finished:
            raise UsageError("the session's audio has ended", where="session", remedy="push before finish()")
