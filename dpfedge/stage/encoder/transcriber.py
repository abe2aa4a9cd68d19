# SPDX-License-Identifier: Apache-2.0
"""One request of the encoder stage: growing and finished utterances in, drafts and final transcripts out.

A turn's words are recognised once, at its first silence, and used at the endpoint unless speech went on in between. It
decides nothing about where a turn ends.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from typing import Any, Protocol

from dpfedge.backend.api import Array
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, Message, Mode, RequestIO, Steps, Wait
from dpfedge.stage.encoder.config import EncoderConfig
from dpfedge.stage.encoder.moonshine import SAMPLES_MIN, Recognition
from dpfedge.stage.encoder.tokens import Tokens
from dpfedge.stage.encoder.words import believed

__all__ = ["Duty", "Recogniser", "Transcriber"]

_EVERY_TURN = 0xFFFF_FFFE  # cancelled only when the whole request is
_RATE_KHZ = 16  # samples per millisecond


class Recogniser(Protocol):
    """What turns samples into token ids."""

    def recognise(self, samples: Array) -> Generator[Wait, None, Recognition]:
        """Run over f32[n] in place."""


@dataclass(slots=True)
class Duty:
    """Work of all requests of the stage that somebody waits for; partial transcripts step back behind it."""

    urgent: int = 0


@dataclass(slots=True)
class _Said:
    """A transcript, the samples it was made from and what it cost."""

    samples: int
    text: str = ""
    cost_ms: float = 0.0
    found: Recognition | None = None
    reason: str = ""


@dataclass(slots=True)
class _Turn:
    """One utterance until its final transcript."""

    number: int
    partial_at: int
    """Samples from which on the next partial transcript is due."""
    growing: Message | None = None
    final: Message | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    """The decoder's last DRAFT map: samples, at_ns, start_ms, end_ms, speech_ms."""
    drafted: _Said | None = None
    shown: str = ""
    partials: int = 0
    wasted_ms: float = 0.0


class Transcriber:
    """The state of one request; `run` is its life."""

    def __init__(
        self, io: RequestIO, recogniser: Recogniser, tokens: Tokens, config: EncoderConfig, duty: Duty
    ) -> None:
        self._io, self._recogniser, self._tokens, self._duty = io, recogniser, tokens, duty
        self.config = config
        """What counts from the next step on."""
        self._queue: deque[Message] = deque()
        self._turn: _Turn | None = None
        self._ended: Mapping[str, Any] | None = None
        self._totals = {"segments": 0, "tokens": 0, "busy_ms": 0.0, "audio_ms": 0.0}

    def run(self) -> Steps:
        """Transcribe until the decoder says that the file has ended, or until the request is cancelled."""
        while not self._io.cancelled(_EVERY_TURN):
            self._absorb()
            work = self._next_work()
            if work is not None:
                yield from work
            elif self._ended is not None:
                yield from self._done_file(self._ended)
                return
            else:
                yield Wait.INPUT

    def close(self) -> None:
        """Give every lease back."""
        self._end_turn()
        while self._queue:
            self._queue.popleft().release()

    # --- messages ---

    def _receive(self) -> None:
        while (message := self._io.receive()) is not None:
            self._queue.append(message)

    def _absorb(self) -> None:
        """Take messages in order up to a finished utterance: nothing of a later turn counts before that is told."""
        self._receive()
        while self._queue and (self._turn is None or self._turn.final is None):
            message = self._queue.popleft()
            if message.kind is Kind.AUDIO:
                self._hear(message)
                continue
            if message.kind is Kind.DRAFT:
                self._turn_of(message).marks = message.map()
            elif message.kind is Kind.DONE:
                self._ended = message.map()
            message.release()

    def _hear(self, message: Message) -> None:
        turn = self._turn_of(message)
        if turn.growing is not None:
            turn.growing.release()
            turn.growing = None
        if message.partial:
            turn.growing = message
        else:
            turn.final = message

    def _turn_of(self, message: Message) -> _Turn:
        if self._turn is not None and self._turn.number != message.turn:
            self._end_turn()
        if self._turn is None:
            self._turn = _Turn(message.turn, self.config.partial_ms * _RATE_KHZ)
        return self._turn

    def _end_turn(self) -> None:
        turn, self._turn = self._turn, None
        for message in (turn.growing, turn.final) if turn is not None else ():
            if message is not None:
                message.release()

    # --- what to do next ---

    def _next_work(self) -> Steps | None:
        turn = self._turn
        if turn is None:
            return None
        if turn.final is not None:
            return self._finish(turn, turn.final)
        if turn.growing is None or self._io.cancelled(turn.number):
            return None
        size = turn.growing.array().size
        if turn.marks.get("samples") == size:
            done = turn.drafted is not None and turn.drafted.samples == size
            return None if done else self._draft(turn, turn.growing)
        wanted = self.config.partials and not self._duty.urgent and size >= turn.partial_at
        return self._partial(turn, turn.growing) if wanted else None

    def _partial(self, turn: _Turn, message: Message) -> Steps:
        said = yield from self._recognise(turn, message, self._urgent_waits)
        if said is None:
            return
        next_ms = max(self.config.partial_ms, said.cost_ms / self.config.partial_share)
        turn.partial_at = said.samples + int(next_ms * _RATE_KHZ)
        turn.partials += 1
        turn.wasted_ms += said.cost_ms
        yield from self._show(turn, said.text)

    def _draft(self, turn: _Turn, message: Message) -> Steps:
        said = yield from self._urgently(turn, message, lambda: self._superseded(message.array().size))
        if said is None:
            return
        if turn.drafted is not None:
            turn.wasted_ms += turn.drafted.cost_ms
        turn.drafted = said
        if not said.text or self._urgent_waits():
            return
        if self._io.has("text"):
            yield from self._io.text("text", Kind.DRAFT, said.text, turn=turn.number)
        yield from self._show(turn, said.text)

    def _finish(self, turn: _Turn, message: Message) -> Steps:
        size, captured_ns = message.array().size, message.captured_ns
        said = turn.drafted
        reused = said is not None and said.samples == size
        if not reused:
            if said is not None:
                turn.wasted_ms += said.cost_ms
            said = yield from self._urgently(turn, message, lambda: False)
        yield from self._tell(turn, said or _Said(size, reason="cancelled"), captured_ns, reused)
        self._end_turn()

    def _urgent_waits(self) -> bool:
        return any(message.kind is not Kind.AUDIO or not message.partial for message in self._queue)

    def _superseded(self, size: int) -> bool:
        """Whether a draft of `size` samples is of no use: another one, or an end with other samples, waits."""
        for message in self._queue:
            if message.kind is not Kind.AUDIO:
                return True
            if not message.partial:
                return message.array().size != size
        return False

    # --- recognition ---

    def _urgently(self, turn: _Turn, message: Message, stop: Callable[[], bool]) -> Generator[Wait, None, _Said | None]:
        self._duty.urgent += 1
        try:
            return (yield from self._recognise(turn, message, stop))
        finally:
            self._duty.urgent -= 1

    def _recognise(
        self, turn: _Turn, message: Message, stop: Callable[[], bool]
    ) -> Generator[Wait, None, _Said | None]:
        """The words of one utterance, or None when it was given up between two steps."""
        size = message.array().size
        if size < SAMPLES_MIN:
            return _Said(size, reason="too_short" if size else "no_speech")
        run, spent = self._recogniser.recognise(message.array()), 0
        try:
            while True:
                started = time.perf_counter_ns()
                try:
                    next(run)
                except StopIteration as end:
                    return self._said(turn, size, end.value, spent + time.perf_counter_ns() - started)
                spent += time.perf_counter_ns() - started
                yield Wait.STEP
                self._receive()
                if self._io.cancelled(turn.number) or stop():
                    turn.wasted_ms += spent / 1e6
                    return None
        finally:
            run.close()

    def _said(self, turn: _Turn, size: int, found: Recognition, spent_ns: int) -> _Said:
        config = self.config
        text = self._tokens.text(found.tokens)
        marked = turn.marks.get("samples") == size
        speech_ms = turn.marks["speech_ms"] if marked else size / _RATE_KHZ
        kept = believed(text, speech_ms, invented=config.invented, least_speech_ms=config.least_speech_ms)
        reason = "" if kept else "not_believed" if text else "no_words"
        return _Said(size, kept, spent_ns / 1e6, found, reason)

    # --- what is told ---

    def _show(self, turn: _Turn, text: str) -> Steps:
        if text and text != turn.shown:
            turn.shown = text
            yield from self._io.text("sink", Kind.DRAFT, text, turn=turn.number)

    def _tell(self, turn: _Turn, said: _Said, captured_ns: int, reused: bool) -> Steps:
        """The final words: to the sink before the llm, so that nobody sees an answer before its question."""
        text_ns = time.monotonic_ns()
        files = self._io.mode in (Mode.TRANSCRIBE, Mode.RUN)
        times = {name: turn.marks.get(name, 0) for name in ("start_ms", "end_ms")}
        if said.text or not files:
            yield from self._io.map("sink", Kind.TEXT, {"text": said.text, **times}, turn=turn.number)
        if self._io.has("text"):
            yield from self._io.text(
                "text", Kind.TEXT, said.text, turn=turn.number, last=True, captured_ns=captured_ns
            )  # fmt: skip
        report = self._report(turn, said, reused) | times
        self._totals["segments"] += 1
        for name in ("tokens", "busy_ms", "audio_ms"):
            self._totals[name] += report[name]
        if not files:
            report |= {"speech_end_ns": captured_ns, "draft_ns": turn.marks.get("at_ns", 0), "text_ns": text_ns}
            yield from self._io.map("sink", Kind.DONE, report, turn=turn.number, last=True)

    def _report(self, turn: _Turn, said: _Said, reused: bool) -> dict[str, Any]:
        found, audio_ms = said.found, said.samples / _RATE_KHZ
        report: dict[str, Any] = {
            "audio_ms": audio_ms,
            "tokens": len(found.tokens) if found else 0,
            "encode_ms": found.encode_ns / 1e6 if found else 0.0,
            "decode_ms": found.decode_ns / 1e6 if found else 0.0,
            "busy_ms": said.cost_ms + turn.wasted_ms,
            "wasted_ms": turn.wasted_ms,
            "partials": turn.partials,
            "drafted": reused,
            "stopped": found.stopped if found else "",
        }
        if audio_ms:
            report["rtf"] = said.cost_ms / audio_ms
        return report | ({"reason": said.reason} if said.reason else {})

    def _done_file(self, decoder: Mapping[str, Any]) -> Steps:
        report: dict[str, Any] = {**self._totals, "finish": "stop" if self._totals["tokens"] else "no_speech"}
        if self._totals["audio_ms"]:
            report["rtf"] = self._totals["busy_ms"] / self._totals["audio_ms"]
        if "reason" in decoder:
            report["reason"] = decoder["reason"]
        if self._io.mode is Mode.RUN and self._io.has("text"):
            yield from self._io.text("text", Kind.END, "", turn=0, last=True)
        yield from self._io.map("sink", Kind.DONE, report, turn=0, last=True)
