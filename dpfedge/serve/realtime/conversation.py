# SPDX-License-Identifier: Apache-2.0
"""The state of one realtime connection: its settings, its session in the runtime, its items and the answer being given.

It reads no client event and no runtime event; `commands.py` and `turns.py` do, and both change the state only here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from dpfedge.errors import DpfError
from dpfedge.pipeline.events import TurnDone
from dpfedge.records import dataclass
from dpfedge.runtime import AudioFormat, Sampling
from dpfedge.serve.api import ServedSession
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.response import Response
from dpfedge.serve.realtime.tail import Tail

__all__ = ["Conversation", "Utterance"]


@dataclass(slots=True)
class Utterance:
    """A user item that is being spoken: what was shown of its words so far."""

    item_id: str
    previous: str | None
    committed: bool = False
    partial: str = ""
    shown: str = ""


@dataclass(slots=True)
class Conversation:
    """One connection's conversation. `reader` is started with each session it opens and reads its events."""

    provider: Provider
    metrics: Metrics
    out: Outbox
    config: SessionConfig
    reader: Callable[[Conversation, ServedSession], Awaitable[None]]
    response: Response | None = None
    answered: Response | None = None
    """The answer given last; a client may still tell how much of it was heard."""
    utterances: dict[int, Utterance] = field(default_factory=dict)
    """Turn → the user item it becomes, until its turn is done."""
    by_hand: Utterance | None = None
    """The item of a `commit` whose turn has not shown itself yet."""
    last_item: str | None = None
    dropped: int = 0
    """Events of turns up to this one come too late."""
    buffered: int = 0
    """Bytes appended since the last commit or clear."""
    asked: bool = False
    """`response.create` came before the words it is to answer."""
    stale: bool = False
    """The settings changed since the session was opened."""
    handling: bool = False
    """An event of the session is being passed on."""
    unsaid: list[dict[str, str]] = field(default_factory=list)
    """What a new session must begin with: the history of the one before, and items of other roles."""
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a client event is obeyed: the session it uses stays."""
    tail: Tail = field(init=False)
    _session: ServedSession | None = None
    _answered_in: ServedSession | None = None
    """The session that gave the last answer."""
    _heard: tuple[str, str] | None = None
    """An answer of a session before this one, and the words of it that were heard."""
    _opened: SessionConfig | None = None
    """The settings that the session was opened with."""
    _reading: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.tail = Tail(self.config.input_hz)

    async def session(self) -> ServedSession:
        """The runtime's session; opened when first used, and opened anew, with its history, between two turns: after
        settings changed, and in the runtime that replaced the old one.
        """
        async with self._lock:
            if self._session is not None and self._between_turns() and (self.stale or self._outdated()):
                await self._leave()
            return self._session or await self._open(self.unsaid)

    async def retire(self) -> bool:
        """Leave a runtime that was replaced, if this is between two turns; the next use opens a session in the new."""
        if not self._outdated():
            return False
        async with self.busy:
            if not self._outdated() or not self._between_turns():
                return False
            await self._leave()
            return True

    def _outdated(self) -> bool:
        return self._session is not None and self.provider.outdated(self._session)

    def _between_turns(self) -> bool:
        """Whether nothing would be lost with the session but its history and the tail of its sound."""
        waiting = self.response or self.utterances or self.by_hand or self.handling
        return not waiting and not (self.buffered and self.config.turn_detection is None)

    async def _leave(self) -> None:
        assert self._session is not None
        self.unsaid[:0] = [dict(message) for message in self._session.history]
        if self._heard is not None:
            _shorten(self.unsaid, *self._heard)
            self._heard = None
        await self._end()

    async def shorten(self, answer: Response, heard: str) -> None:
        """Of the answer given last, the history keeps only what was heard."""
        if self._session is None:
            _shorten(self.unsaid, answer.text, heard)
        elif self._session is self._answered_in:
            await self._session.interrupt(heard)
        else:  # this session was told all of it when it was opened
            self._heard, self.stale = (answer.text, heard), True

    async def _open(self, history: Sequence[Mapping[str, str]]) -> ServedSession:
        config = self.config
        if self._opened not in (None, config):
            self.tail.clear()  # it was heard with other settings
        self._opened = config
        if self.tail.rate != config.input_hz:
            self.tail = Tail(config.input_hz)
        heard = self.tail.take_over()
        session = self._session = await self.provider.converse(
            AudioFormat("pcm_s16le", config.input_hz, 1),
            history=list(history),
            instructions=config.instructions,
            vad=config.vad,
            sampling=Sampling(max_tokens=config.max_output_tokens),
            spoken=config.modality == "audio",
        )
        self.stale, self.dropped = False, 0
        self.unsaid.clear()
        self._reading = asyncio.ensure_future(self.reader(self, session))
        if heard:
            await session.push(heard)
        return session

    async def _end(self) -> None:
        session, reading = self._session, self._reading
        self._session = self._reading = None
        try:
            if reading is not None and reading is not asyncio.current_task():
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await reading
        finally:
            if session is not None:
                await self.provider.end(session)

    async def lost(self, session: ServedSession) -> None:
        """The session ended by itself; the next use opens a new one that knows what was said."""
        if self._session is not session:
            return
        self.utterances.clear()
        self.by_hand = None
        self.tail.clear()
        await self._leave()

    async def close(self) -> None:
        """End the session in every stage."""
        await self._end()

    def add_item(self, item_id: str) -> str | None:
        """Make `item_id` the last item; returns the one before."""
        previous, self.last_item = self.last_item, item_id
        return previous

    async def begin_response(self, turn: int | None) -> Response:
        """Start to answer `turn` (None: the turn of the next words)."""
        if self.response is not None:
            await self.end_response("cancelled", reason="turn_detected")
        self.response = Response(self.out, self.config, turn, self.last_item)
        self.last_item = self.response.item_id
        self.asked = False
        await self.response.begin()
        return self.response

    async def end_response(
        self, status: str, *, reason: str | None = None, done: TurnDone | None = None, error: DpfError | None = None
    ) -> None:
        """Finish the answer being given, if there is one."""
        response, self.response = self.response, None
        if response is not None:
            self.answered, self._answered_in = response, self._session
            await response.finish(status, reason=reason, done=done, error=error)

    async def interrupt(self, reason: str, heard: str | None = None) -> None:
        """Cancel the answer being given; the history keeps `heard`, or what can have been played by now."""
        response = self.response
        if response is None or self._session is None:
            return
        words = heard if heard is not None else response.heard(response.playing_ms())
        self.dropped = max(self.dropped, response.turn or 0)
        await self.end_response("cancelled", reason=reason)
        await self._session.interrupt(words)


def _shorten(history: Sequence[dict[str, str]], said: str, heard: str) -> None:
    """Of the last answer with the words `said`, keep those that were heard."""
    for message in reversed(history):
        if (message["role"], message["content"]) == ("assistant", said):
            message["content"] = heard
            return
