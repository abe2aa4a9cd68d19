# SPDX-License-Identifier: Apache-2.0
"""One request's events: stage messages in (from the sink's thread), events out (on the caller's event loop).

It knows what each message means to a caller and when a turn is complete; it sends nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dpfedge import errors
from dpfedge.errors import DpfError, StageError
from dpfedge.limits import BACKLOG_LEASES, EVENTS_MAX
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    Failed,
    PartialTranscript,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.pipeline.io import LinkMessage
from dpfedge.stage.api import Kind, Mode

__all__ = ["END", "Feed", "rebuild"]

END = object()
"""In a feed after the last event of its request."""


@dataclass(slots=True)
class _Turn:
    report: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    first_audio_ns: int = 0
    first_text_ns: int = 0


@dataclass(slots=True)
class _Item:
    event: Event | DpfError | object
    message: LinkMessage | None = None


class Feed:
    """Receives for one request. `voice_rate` is Hz; `observe` sees each event before the caller, on the loop."""

    def __init__(
        self,
        mode: Mode,
        route: tuple[str, ...],
        voice_rate: int,
        *,
        observe: Callable[[Event], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._mode, self._route, self._rate = mode, route, voice_rate
        self._observe = observe
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._turns: dict[int, _Turn] = {}
        self._pending: set[int] = set()
        self._input_ended = False
        self._held: LinkMessage | None = None
        self._handed, self._returned = 0, 0  # each counted by one thread only: the sink's and the loop's
        self.copies = 0
        self.closed = False

    # --- the sink's thread ---

    def receive(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        """Turn one message into events and hand them to the loop."""
        handler = _HANDLERS.get((stage, message.kind)) or _HANDLERS.get(("", message.kind))
        if handler is None:
            message.release()
            return
        items = handler(self, stage, message, at_ns)
        if not any(item.message is message for item in items):
            message.release()
        if items and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, items)

    def fail(self, error: DpfError, *, turn: int = 0) -> None:
        """End the request with an error (a session: the turn)."""
        item = _Item(Failed(turn, time.monotonic_ns(), error) if self._mode is Mode.CONVERSE else error)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, [item])

    def finish(self) -> None:
        """No more events will come."""
        self._loop.call_soon_threadsafe(self._put, [_Item(END)])

    def _started(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        self._pending.add(message.turn)
        return [_Item(SpeechStarted(message.turn, at_ns, int(message.map()["at_ms"])))]

    def _stopped(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        data = message.map()
        return [_Item(SpeechStopped(message.turn, at_ns, int(data["at_ms"]), int(data["start_ms"]), data["reason"]))]

    def _draft(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        return [_Item(PartialTranscript(message.turn, at_ns, message.text()))]

    def _transcript(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        data = message.map()
        event = Transcript(message.turn, at_ns, data["text"], int(data["start_ms"]), int(data["end_ms"]))
        return [_Item(event)]

    def _delta(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        turn = self._turn(message.turn)
        turn.first_text_ns = turn.first_text_ns or at_ns
        return [_Item(TextDelta(message.turn, at_ns, message.text()))]

    def _audio(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        turn = self._turn(message.turn)
        turn.first_audio_ns = turn.first_audio_ns or at_ns
        samples = message.array()
        if self._handed - self._returned >= BACKLOG_LEASES:
            # a caller that reads slowly may not hold the link's slots against everybody else
            self.copies += 1
            return [_Item(AudioChunk(message.turn, at_ns, samples.copy(), self._rate))]
        self._handed += 1
        return [_Item(AudioChunk(message.turn, at_ns, samples, self._rate), message)]

    def _failed(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        error = rebuild(message.map())
        self._turns.pop(message.turn, None)
        if self._mode is not Mode.CONVERSE:
            return [_Item(error)]
        return [_Item(Failed(message.turn, at_ns, error)), *self._ended(message.turn)]

    def _done(self, stage: str, message: LinkMessage, at_ns: int) -> list[_Item]:
        if self._mode is Mode.CONVERSE and message.turn == 0:
            self._input_ended = True  # the decoder's word for the whole session, after its last turn
            return self._ended(0)
        turn = self._turn(message.turn)
        turn.report[stage] = message.map()
        if self._mode is Mode.TRANSCRIBE:
            return self._transcribed(turn, stage, message.turn, at_ns)
        if not self._complete(turn):
            return []
        self._turns.pop(message.turn)
        items = [_Item(self._turn_done(turn, message.turn, at_ns))]
        return [*items, *self._ended(message.turn)] if self._mode is Mode.CONVERSE else [*items, _Item(END)]

    def _ended(self, turn: int) -> list[_Item]:
        """The end of a session whose input has ended and whose turns are all complete."""
        self._pending.discard(turn)
        return [_Item(END)] if self._input_ended and not self._pending else []

    def _transcribed(self, turn: _Turn, stage: str, number: int, at_ns: int) -> list[_Item]:
        """A file is done when its last segment, which the encoder marks with turn 0, is."""
        if number != 0 or set(turn.report) != {"decoder", "encoder"}:
            return []
        return [_Item(self._turn_done(turn, 0, at_ns)), _Item(END)]

    def _complete(self, turn: _Turn) -> bool:
        if self._mode is Mode.SPEAK:
            return "voice" in turn.report
        llm = turn.report.get("llm")
        if llm is None:
            return False
        silent = "voice" not in self._route or not llm.get("clauses")
        return silent or "voice" in turn.report

    def _turn_done(self, turn: _Turn, number: int, at_ns: int) -> TurnDone:
        last = turn.report.get("llm") or turn.report.get("voice") or turn.report.get("encoder") or {}
        marks = {"first_audio_ns": turn.first_audio_ns, "first_text_ns": turn.first_text_ns, "done_ns": at_ns}
        return TurnDone(number, at_ns, str(last.get("finish", "stop")), {**turn.report, "runtime": marks})

    def _turn(self, number: int) -> _Turn:
        return self._turns.setdefault(number, _Turn())

    # --- the caller's loop ---

    def _put(self, items: list[_Item]) -> None:
        for item in items:
            if self.closed or self._items.qsize() >= EVENTS_MAX:
                self._overflow(item)
                continue
            if self._observe is not None and isinstance(item.event, Event):
                self._observe(item.event)
            self._items.put_nowait(item)

    def _overflow(self, item: _Item) -> None:
        if item.message is not None:
            item.message.release()
            self._returned += 1
        if not self.closed:
            self.closed = True
            error = StageError(
                "nobody reads this request's events", found=f"{EVENTS_MAX} waiting", remedy="iterate over events()"
            )
            self._items.put_nowait(_Item(error))

    async def next(self) -> Event | None:
        """The next event, or None after the last; raises the request's error. Ends the previous event's view."""
        self.release()
        item = await self._items.get()
        if item.message is not None:
            self._held = item.message
            self._returned += 1
        if isinstance(item.event, DpfError):
            raise item.event
        return item.event if isinstance(item.event, Event) else None

    def release(self) -> None:
        """End the view of the event given last."""
        if self._held is not None:
            self._held.release()
            self._held = None

    def close(self) -> None:
        """Give back whatever was not read."""
        self.closed = True
        self.release()
        while not self._items.empty():
            message = self._items.get_nowait().message
            if message is not None:
                message.release()


_Handler = Callable[[Feed, str, LinkMessage, int], list[_Item]]
_HANDLERS: Mapping[tuple[str, Kind], _Handler] = {
    ("decoder", Kind.SPEECH_STARTED): Feed._started,
    ("decoder", Kind.SPEECH_STOPPED): Feed._stopped,
    ("encoder", Kind.DRAFT): Feed._draft,
    ("encoder", Kind.TEXT): Feed._transcript,
    ("llm", Kind.TEXT): Feed._delta,
    ("voice", Kind.AUDIO): Feed._audio,
    ("", Kind.FAILED): Feed._failed,
    ("", Kind.DONE): Feed._done,
}


def rebuild(data: Mapping[str, Any]) -> DpfError:
    """The error a stage described, as the class it was there."""
    kind = getattr(errors, data["type"], StageError)
    parts = {name: data.get(name) for name in ("where", "found", "allowed", "remedy")}
    if issubclass(kind, StageError):
        return kind(data["what"], stage=data["stage"], **parts)
    error = kind(data["what"], **parts)
    assert isinstance(error, DpfError)
    return error
