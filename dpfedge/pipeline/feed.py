# SPDX-License-Identifier: Apache-2.0
"""One request's events: stage messages in (from the sink's thread), events out (on the caller's event loop).

It knows what each message means to a caller, when a turn is complete, and which turns a stage's death ends; it sends
nothing. Everything but `receive` happens on the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

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
from dpfedge.pipeline.messages import LinkMessage
from dpfedge.records import dataclass
from dpfedge.stage.api import TURN_STRIDE, Kind, Mode
from dpfedge.stage.failure import rebuild

__all__ = ["Feed"]

_END = object()
_OVER_MAX = 256  # turns that ended and may still have messages under way; a session has two or three


@dataclass(slots=True)
class _Turn:
    """A turn that began and is not complete. `at`: the stage that has to act next."""

    at: str
    report: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    first_audio_ns: int = 0
    first_text_ns: int = 0


@dataclass(slots=True)
class _Item:
    event: Event | BaseException | object
    message: LinkMessage | None = None


class Feed:
    """Receives for one request. `voice_rate` is Hz; `observe` sees each event before the caller.

    `one_file`: the session's audio is one container, so a decoder that cannot read it has nothing more to read.
    """

    def __init__(
        self,
        mode: Mode,
        route: tuple[str, ...],
        voice_rate: int,
        *,
        observe: Callable[[Event], None] | None = None,
        one_file: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.route = route
        self._mode, self._rate, self._observe, self._one_file = mode, voice_rate, observe, one_file
        self._items: asyncio.Queue[_Item] = asyncio.Queue()
        self._turns: dict[int, _Turn] = {}
        self._over: dict[int, None] = {}
        self._input_ended = False
        self._held: LinkMessage | None = None
        self._unread = 0
        self.again: Callable[[], None] | None = None
        """Starts the request once more, for a stage that died before it gave anything; None when that cannot be."""
        self.ended: Callable[[TurnDone | Failed], None] | None = None
        """Told of every turn that is complete or failed (turn 0: the whole request); must return at once."""
        self.copies = 0
        """Chunks moved to memory of their own because the caller reads slowly or keeps them."""
        self.closed = False

    @property
    def resting(self) -> bool:
        """Whether it is a session with no turn in progress; from any thread."""
        return self._mode is Mode.CONVERSE and not self._turns

    def receive(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        """Pass a message on to the loop; called from the sink's thread. The link's slots bound what waits there."""
        try:
            self._loop.call_soon_threadsafe(self._take, stage, message, at_ns, scarce)
        except RuntimeError:  # the loop is closed, nobody can read any more
            message.release()

    # --- messages to events ---

    def _take(self, stage: str, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        handler = _HANDLERS.get((stage, message.kind)) or _HANDLERS.get(("", message.kind))
        if handler is None or self.closed or (message.turn in self._over and message.kind is not Kind.FAILED):
            message.release()
            return
        try:
            if handler is Feed._audio:
                self._audio(message, at_ns, scarce)
                return
            handler(self, stage, message, at_ns)
        except (DpfError, LookupError, TypeError, ValueError) as error:
            self.fail(StageError("a message makes no sense", stage=stage, found=f"{message.kind.name}: {error}"))
        message.release()

    def _started(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        self._turn(message.turn, "decoder")
        self._put(SpeechStarted(message.turn, at_ns, int(message.map()["at_ms"])))

    def _stopped(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        data = message.map()
        self._turn(message.turn, "encoder").at = "encoder"
        self._put(SpeechStopped(message.turn, at_ns, int(data["at_ms"]), int(data["start_ms"]), str(data["reason"])))

    def _draft(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        self._put(PartialTranscript(message.turn, at_ns, message.text()))

    def _transcript(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        data = message.map()
        if self._mode is Mode.CONVERSE:
            self._turn(message.turn, "llm").at = "llm"
        self._put(Transcript(message.turn, at_ns, str(data["text"]), int(data["start_ms"]), int(data["end_ms"])))

    def _delta(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        turn = self._turn(message.turn, "llm")
        turn.first_text_ns = turn.first_text_ns or at_ns
        self._put(TextDelta(message.turn, at_ns, message.text()))

    def _audio(self, message: LinkMessage, at_ns: int, scarce: bool) -> None:
        turn = self._turn(message.turn, "llm")
        turn.first_audio_ns = turn.first_audio_ns or at_ns
        samples = message.array()
        if scarce or self._unread >= BACKLOG_LEASES:
            # a caller that reads slowly, or keeps what it read, may not hold the link's slots against everybody else
            self.copies += 1
            samples = samples.copy()
            message.release()
            self._put(AudioChunk(message.turn, at_ns, samples, self._rate))
        else:
            self._put(AudioChunk(message.turn, at_ns, samples, self._rate), message)

    def _failed(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        error = rebuild(message.map())
        if self._mode is not Mode.CONVERSE:
            self.fail(error)
            return
        self._input_ended |= self._one_file and stage == "decoder"
        speaking = [number for number, turn in self._turns.items() if stage == turn.at == "decoder"]
        self._fail_turns(speaking or [message.turn], error)
        self._check_end()

    def _done(self, stage: str, message: LinkMessage, at_ns: int) -> None:
        if self._mode is Mode.CONVERSE and message.turn == 0:
            self._input_ended = True  # the decoder's word for the whole session, after its last turn
            self._check_end()
            return
        turn = self._turn(message.turn, "llm" if stage in ("llm", "voice") else "encoder")
        turn.report[stage] = message.map()
        if not self._complete(turn, message.turn):
            return
        self._forget(message.turn)
        done = self._turn_done(turn, message.turn, at_ns)
        self._tell(done)
        self._put(done)
        if self._mode is Mode.CONVERSE:
            self._check_end()
        else:
            self._end()

    def _complete(self, turn: _Turn, number: int) -> bool:
        if self._mode is Mode.SPEAK:
            return "voice" in turn.report
        if self._mode is Mode.TRANSCRIBE:
            # a file is done when its last segment is, which decoder and encoder mark with turn 0
            return number == 0 and {"decoder", "encoder"} <= turn.report.keys()
        llm = turn.report.get("llm")
        if llm is None:
            return False
        silent = "voice" not in self.route or not llm.get("clauses")
        heard = self._mode is Mode.CHAT or number % TURN_STRIDE != 0 or {"decoder", "encoder"} <= turn.report.keys()
        return heard and (silent or "voice" in turn.report)

    def _turn_done(self, turn: _Turn, number: int, at_ns: int) -> TurnDone:
        last = turn.report.get("llm") or turn.report.get("voice") or turn.report.get("encoder") or {}
        marks = {"first_audio_ns": turn.first_audio_ns, "first_text_ns": turn.first_text_ns, "done_ns": at_ns}
        return TurnDone(number, at_ns, str(last.get("finish", "stop")), {**turn.report, "runtime": marks})

    def _turn(self, number: int, at: str) -> _Turn:
        return self._turns.setdefault(number, _Turn(at))

    def _forget(self, number: int) -> None:
        self._turns.pop(number, None)
        if number and self._mode is Mode.CONVERSE:
            self._over[number] = None
            if len(self._over) > _OVER_MAX:
                del self._over[next(iter(self._over))]

    def _fail_turns(self, numbers: list[int], error: DpfError) -> None:
        for number in numbers:
            self._forget(number)
            failed = Failed(number, time.monotonic_ns(), error)
            self._tell(failed)
            self._put(failed)

    def _tell(self, event: TurnDone | Failed) -> None:
        if self.ended is not None and not self.closed:
            self.ended(event)

    def _check_end(self) -> None:
        """The end of a session whose input has ended and whose turns are all complete."""
        if self._input_ended and not self._turns:
            self._end()

    # --- what the request's owner says ---

    def expect(self, turn: int) -> None:
        """An answer to what was typed was asked for."""
        self._turn(turn, "llm")

    def fail(self, error: BaseException, *, turn: int = 0) -> None:
        """End the request with an error (a session: tell it, and go on)."""
        if self._mode is Mode.CONVERSE and isinstance(error, DpfError):
            self._fail_turns([turn], error)
        else:
            if isinstance(error, DpfError):
                self._tell(Failed(turn, time.monotonic_ns(), error))
            self._append(_Item(error))

    def finish(self) -> None:
        """No more events will come."""
        self._end()

    def stage_died(self, stage: str, error: DpfError) -> int:
        """Fail what was lost with the process: the request, unless it can be tried again, or a session's turns.

        Returns the last of these turns, 0 for none. Turns that had not reached the stage go on when it is back; of the
        decoder's loss a session always hears, for nobody knows what speech it had been given.
        """
        if stage not in self.route:
            return 0
        if self._mode is not Mode.CONVERSE:
            again, self.again = self.again, None
            if again is not None:
                again()
            else:
                self.fail(error)
            return 0
        lost = [number for number, turn in self._turns.items() if _had_part(stage, turn, number)]
        unheard = stage == "decoder" and not self._input_ended
        self._fail_turns(lost or ([0] if unheard else []), error)
        self._check_end()
        return max(lost, default=0)

    # --- events to the caller ---

    def _put(self, event: Event, message: LinkMessage | None = None) -> None:
        self.again = None  # the caller would hear the beginning twice
        if self._observe is not None and not self.closed:
            self._observe(event)
        self._unread += message is not None
        self._append(_Item(event, message))

    def _append(self, item: _Item) -> None:
        if self.closed or self._items.qsize() >= EVENTS_MAX:
            self._overflow(item)
        else:
            self._items.put_nowait(item)

    def _end(self) -> None:
        # not through `_append`: the end of a request nobody reads needs its place too
        self._items.put_nowait(_Item(_END))

    def _overflow(self, item: _Item) -> None:
        if item.message is not None:
            item.message.release()
            self._unread -= 1
        if not self.closed:
            self.closed = True
            found = f"{EVENTS_MAX} waiting"
            error = StageError("nobody reads this request's events", found=found, remedy="iterate over events()")
            self._items.put_nowait(_Item(error))

    async def next(self) -> Event | None:
        """The next event, or None after the last; raises the request's error. Ends the previous event's view."""
        self.release()
        item = await self._items.get()
        if item.message is not None:
            self._held = item.message
            self._unread -= 1
        if isinstance(item.event, BaseException):
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
        self._end()  # whoever still waits


def _had_part(stage: str, turn: _Turn, number: int) -> bool:
    """Whether the turn lost something with the process of `stage`."""
    if stage in turn.report:
        return False
    if stage == "decoder":
        return number % TURN_STRIDE == 0
    return turn.at in {"encoder": ("encoder",), "llm": ("encoder", "llm"), "voice": ("llm",)}[stage]


_Handler = Callable[..., None]
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
