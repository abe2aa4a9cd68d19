# SPDX-License-Identifier: Apache-2.0
"""The state of one realtime connection: its settings, its session in the runtime, its items and the answer being given.

It reads no client event and no runtime event; `commands.py` and `turns.py` do, and both change the state only here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dpfedge.errors import DpfError
from dpfedge.pipeline.events import TurnDone
from dpfedge.runtime import AudioFormat, Sampling
from dpfedge.serve.api import ServedSession
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.response import Response

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
    unsaid: list[dict[str, str]] = field(default_factory=list)
    """Items of other roles that a new session must begin with."""
    _session: ServedSession | None = None
    _reading: asyncio.Task[None] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def session(self) -> ServedSession:
        """The runtime's session; opened when first used, and opened anew, with its history, after settings changed."""
        async with self._lock:
            quiet = self.response is None and not self.utterances
            if self._session is not None and self.stale and quiet:
                history = [*self._session.history, *self.unsaid]
                await self._end()
                return await self._open(history)
            return self._session or await self._open(self.unsaid)

    async def _open(self, history: Sequence[Mapping[str, str]]) -> ServedSession:
        config = self.config
        self._session = await self.provider.runtime.converse(
            AudioFormat("pcm_s16le", config.input_hz, 1),
            history=list(history),
            instructions=config.instructions,
            vad=config.vad,
            sampling=Sampling(max_tokens=config.max_output_tokens),
            spoken=config.modality == "audio",
        )
        self.stale, self.dropped = False, 0
        self.unsaid.clear()
        self._reading = asyncio.ensure_future(self.reader(self, self._session))
        return self._session

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

    async def lost(self) -> None:
        """The session ended by itself; the next use opens a new one that knows what was said."""
        if self._session is not None:
            self.unsaid[:0] = [dict(message) for message in self._session.history]
        self.utterances.clear()
        self.by_hand = None
        await self._end()

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
            self.answered = response
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
