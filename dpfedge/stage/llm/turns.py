# SPDX-License-Identifier: Apache-2.0
"""The life of one request of the llm stage: messages of a `RequestIO` in, text, clauses and reports out.

`Chat` answers once; `Converse` answers turn after turn and keeps what was said. Neither computes anything itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from dpfedge.errors import BackendError, DpfError, InputError, RunCancelled, StageError
from dpfedge.records import dataclass
from dpfedge.stage.api import TURN_STRIDE, Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.failure import describe
from dpfedge.stage.llm.cache import Place, Pool, Prefix, common_prefix
from dpfedge.stage.llm.clauses import Clauses
from dpfedge.stage.llm.config import LlmConfig
from dpfedge.stage.llm.engine import Answer, answer_room, prefill
from dpfedge.stage.llm.prompt import Conversation, Prompts
from dpfedge.stage.llm.replies import Replies
from dpfedge.stage.llm.sampling import Sampling
from dpfedge.stage.llm.template import check_messages
from dpfedge.stage.llm.tokenizer import Tokenizer

__all__ = ["Asked", "Chat", "Converse", "Parts", "Report"]


_WHOLE = 3  # a text known as a whole may have clauses this many times as long


@dataclass(slots=True)
class Parts:
    """What all requests of the stage share."""

    settings: LlmConfig
    """What counts from the next answer on."""
    tokenizer: Tokenizer
    prompts: Prompts
    pool: Pool
    ends: frozenset[int]
    opening: Sequence[Mapping[str, str]]
    replies: Replies
    shared: Sequence[int]
    """The tokens every prompt that begins with `opening` begins with."""


@dataclass(slots=True)
class Report:
    """What one turn did; `*_ns` are CLOCK_MONOTONIC."""

    started_ns: int = field(default_factory=time.monotonic_ns)
    source: str = "llm"
    finish: str = "stop"
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    clauses: int = 0
    prefill_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    first_clause_ns: int = 0

    def to_map(self) -> dict[str, Any]:
        """The DONE message."""
        report: dict[str, Any] = {
            "source": self.source,
            "finish": self.finish,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "clauses": self.clauses,
            "started_ns": self.started_ns,
            "prefill_ms": self.prefill_ns / 1e6,
            "decode_ms": (self.last_token_ns - self.first_token_ns) / 1e6,
        }
        if self.first_token_ns:
            report |= {"first_token_ns": self.first_token_ns, "ttft_ms": (self.first_token_ns - self.started_ns) / 1e6}
        if self.first_clause_ns:
            report["first_clause_ns"] = self.first_clause_ns
        if self.last_token_ns > self.first_token_ns and self.completion_tokens > 1:
            report["tokens_per_s"] = (self.completion_tokens - 1) * 1e9 / (self.last_token_ns - self.first_token_ns)
        return report


class Asked:
    """What all kinds of request do: prefill, generate, send."""

    def __init__(self, parts: Parts, io: RequestIO) -> None:
        self.parts, self.io = parts, io
        self.place: Place | None = None
        self.said = ""

    def _sampling(self) -> Sampling:
        """The stage's as it is now, with what this request asks for."""
        return self.parts.settings.sampling.with_request(self.io.options.get("sampling"))

    def _prefill(
        self, place: Place, messages: Sequence[Mapping[str, str]], tokens: Sequence[int], turn: int, report: Report
    ) -> Steps:
        started = time.monotonic_ns()
        newest = self.parts.prompts.newest(messages, tokens)
        report.prompt_tokens = report.cached_tokens = len(tokens)
        with self._computing(turn):
            for count in prefill(place, tokens, self.parts.settings.chunk_tokens, newest):
                report.cached_tokens -= count
                report.prefill_ns = time.monotonic_ns() - started
                yield Wait.STEP
                if self.io.cancelled(turn):
                    return

    @contextmanager
    def _computing(self, turn: int) -> Iterator[None]:
        """Inside, a cancel of `turn` ends a run on its way, and that is no failure."""
        self.io.working = turn
        try:
            yield
        except RunCancelled:
            if not self.io.cancelled(turn):
                raise  # the request's time is over
        finally:
            self.io.working = None

    def _open(self, place: Place) -> Steps:
        """Compute the package's opening if no request before did; all later ones copy it."""
        pool, shared = self.parts.pool, self.parts.shared
        if pool.prefix is None and shared:
            yield from self._begin(place, shared)
            place.keep(len(shared))
            pool.prefix = Prefix.of(place)

    def _begin(self, place: Place, tokens: Sequence[int]) -> Steps:
        """Make `place` hold a sequence that begins with `tokens`; what it holds of them already stays."""
        if common_prefix(place.tokens, tokens) < len(tokens):
            for _ in prefill(place, tokens, self.parts.settings.chunk_tokens, len(tokens)):
                yield Wait.STEP

    def _generate(self, answer: Answer, turn: int, report: Report) -> Steps:
        """Send the answer's text to the sink and its clauses to the voice; `said` grows with it."""
        clauses = self._clauses()
        while answer.finish is None and not self.io.cancelled(turn):
            text = ""
            with self._computing(turn):
                text = answer.step()
            report.first_token_ns, report.last_token_ns = answer.first_token_ns, answer.last_token_ns
            report.completion_tokens = answer.count
            if text:
                yield from self._say(text, turn, clauses, report)
            if answer.finish is None:
                yield Wait.STEP
        report.finish = answer.finish or "cancelled"
        yield from self._end_speech(turn, clauses, report)

    def _clauses(self, *, whole: bool = False) -> Clauses | None:
        """For the voice, if there is one; a `whole` text need not be cut where nothing pauses."""
        settings, longer = self.parts.settings, _WHOLE if whole else 1
        return (
            Clauses(settings.first_words * longer, settings.clause_words * longer) if self.io.has("clauses") else None
        )

    def _say(self, text: str, turn: int, clauses: Clauses | None, report: Report) -> Steps:
        self.said += text
        yield from self.io.text("sink", Kind.TEXT, text, turn=turn)
        for clause in clauses.push(text) if clauses else ():
            yield from self._clause(clause, turn, report)

    def _clause(self, clause: str, turn: int, report: Report, *, last: bool = False) -> Steps:
        report.clauses += 1
        report.first_clause_ns = report.first_clause_ns or time.monotonic_ns()
        yield from self.io.text("clauses", Kind.TEXT, clause, turn=turn, last=last)
        if report.clauses == 1:
            yield from self._give_way(turn)

    def _give_way(self, turn: int) -> Steps:
        """The person waits for the first clause's sound, not for the next token, nor for the next turn's beginning."""
        until = time.monotonic_ns() + self.parts.settings.give_way_ms * 1_000_000
        while self.io.pending("clauses") and time.monotonic_ns() < until and not self.io.cancelled(turn):
            yield Wait.SPACE

    def _end_speech(self, turn: int, clauses: Clauses | None, report: Report) -> Steps:
        """The clauses still held back, and the end mark of a turn the voice has heard of."""
        if clauses is None:
            return
        rest = [] if self.io.cancelled(turn) else clauses.finish()
        for index, clause in enumerate(rest):
            yield from self._clause(clause, turn, report, last=index == len(rest) - 1)
        if not rest and report.clauses:
            yield from self.io.text("clauses", Kind.TEXT, "", turn=turn, last=True)

    def _done(self, turn: int, report: Report) -> Steps:
        yield from self.io.map("sink", Kind.DONE, report.to_map(), turn=turn, last=True)


class Chat(Asked):
    """One answer to a list of messages."""

    def run(self) -> Steps:
        """The whole request; InputError, ContextLengthError and Busy before the first text."""
        parts, report, turn = self.parts, Report(), 1
        messages = check_messages(self.io.options.get("messages"))
        if parts.opening and messages[0]["role"] != "system":
            messages = [*(dict(message) for message in parts.opening), *messages]
        sampling = self._sampling()
        tokens = parts.prompts.tokens(messages)
        asked = (self.io.options.get("sampling") or {}).get("max_tokens")
        room = answer_room(len(tokens), asked, sampling.max_tokens, parts.pool.context)
        place = parts.pool.take(tokens)
        try:
            if common_prefix(parts.shared, tokens) == len(parts.shared):
                yield from self._open(place)
            yield from self._prefill(place, messages, tokens, turn, report)
            report.finish = "cancelled"
            if not self.io.cancelled(turn):
                yield from self._generate(Answer(place, parts.tokenizer, parts.ends, sampling, room), turn, report)
        finally:
            parts.pool.give(place)
        yield from self._done(turn, report)


class Converse(Asked):
    """A conversation. Options: `instructions` (instead of the package's opening), `history`, `sampling`."""

    def __init__(self, parts: Parts, io: RequestIO) -> None:
        super().__init__(parts, io)
        instructions = io.options.get("instructions")
        if instructions is not None and not isinstance(instructions, str):
            raise InputError("must be a string", stage="llm", where="instructions", found=type(instructions).__name__)
        opening = parts.opening if instructions is None else [{"role": "system", "content": instructions}]
        self.talk = Conversation.of(opening, io.options.get("history"), parts.settings.history_turns)
        self._sampling()  # a value out of range ends the request before its first turn
        self.answers = 0

    def run(self) -> Steps:
        """Turns until the runner closes the request; a turn that fails is reported and the conversation goes on."""
        self.place = self.parts.pool.take(self.parts.prompts.shared(self.talk.messages()))
        try:
            if self.talk.opening is self.parts.opening:
                yield from self._open(self.place)
            yield from self._prepare()
            while True:
                message = self.io.receive()
                if message is None:
                    yield Wait.INPUT
                    continue
                turn, kind = message.turn, message.kind
                try:
                    yield from self._handle(message)
                    if kind is not Kind.DRAFT:
                        yield from self._prepare()
                except RunCancelled:
                    raise  # nobody waits for the conversation any more
                except (StageError, BackendError) as error:
                    yield from self._failed(turn, kind, error)
        finally:
            self.parts.pool.give(self.place)

    def _prepare(self) -> Steps:
        """Compute what the next prompt begins with while nobody waits: the person listens or speaks."""
        assert self.place is not None
        prompts, room = self.parts.prompts, self._room()
        tokens = prompts.shared(self.talk.messages())
        if len(tokens) > room and self.talk.asked:
            self.talk.forget(prompts, room)  # an answer would; what is typed must not pile up until one is asked for
            tokens = prompts.shared(self.talk.messages())
        if len(tokens) <= room:
            yield from self._begin(self.place, tokens)

    def _handle(self, message: Message) -> Steps:
        kind, turn = message.kind, message.turn
        text = message.text() if kind in (Kind.TEXT, Kind.DRAFT) else ""
        options = message.map() if kind in (Kind.HEARD, Kind.RESPOND) else {}
        message.release()
        if kind is Kind.HEARD:
            self.talk.heard(turn, str(options.get("text", "")))
        elif kind is Kind.TEXT and turn % TURN_STRIDE:
            self.talk.add("user", text, turn)  # typed; RESPOND asks for the answer
        elif kind is Kind.TEXT:
            yield from self._transcript(text, turn)
        elif kind is Kind.DRAFT:
            yield from self._draft(text, turn)
        elif kind is Kind.RESPOND:
            yield from self._respond(options, turn)

    def _draft(self, text: str, turn: int) -> Steps:
        """Compute the prompt of a transcript that may still change; nothing leaves."""
        if not text.strip() or self.io.cancelled(turn) or self.parts.replies.find(text, 1):
            return
        draft = self.talk.copy()
        draft.add("user", text, turn)
        tokens = draft.fit(self.parts.prompts, self._room())
        assert self.place is not None
        yield from self._prefill(self.place, draft.messages(), tokens, turn, Report())

    def _transcript(self, text: str, turn: int) -> Steps:
        report = Report()
        if not text.strip():
            report.finish, report.source = "no_speech", "none"
            yield from self._done(turn, report)
            return
        self.talk.add("user", text, turn)
        yield from self._answer(text, turn, report)

    def _respond(self, options: Mapping[str, Any], turn: int) -> Steps:
        """Answer what the conversation holds; `instructions` of the options count for this answer only."""
        instructions = options.get("instructions")
        kept = self.talk.opening
        if isinstance(instructions, str):
            self.talk.opening = [{"role": "system", "content": instructions}]
        try:
            last = self.talk.entries[-1] if self.talk.entries else None
            asked = last.content if last is not None and last.role == "user" else ""
            yield from self._answer(asked, turn, Report())
        finally:
            self.talk.opening = kept

    def _answer(self, asked: str, turn: int, report: Report) -> Steps:
        self.said = ""
        self.answers += 1
        reply = self.parts.replies.find(asked, self.answers)
        try:
            yield from self._reply(reply, turn, report) if reply else self._think(turn, report)
        finally:
            if self.said:
                self.talk.heard(turn, self.said)
        yield from self._done(turn, report)

    def _reply(self, reply: str, turn: int, report: Report) -> Steps:
        report.source = "reply"
        report.first_token_ns = report.last_token_ns = time.monotonic_ns()
        clauses = self._clauses(whole=True)
        if not self.io.cancelled(turn):
            yield from self._say(reply, turn, clauses, report)
        report.finish = "cancelled" if self.io.cancelled(turn) else "stop"
        yield from self._end_speech(turn, clauses, report)

    def _think(self, turn: int, report: Report) -> Steps:
        parts, place = self.parts, self.place
        assert place is not None
        tokens = self.talk.fit(parts.prompts, self._room())
        yield from self._prefill(place, self.talk.messages(), tokens, turn, report)
        report.finish = "cancelled"
        if not self.io.cancelled(turn):
            sampling = self._sampling()
            room = answer_room(len(tokens), None, sampling.max_tokens, parts.pool.context)
            yield from self._generate(Answer(place, parts.tokenizer, parts.ends, sampling, room), turn, report)

    def _room(self) -> int:
        """Tokens for the prompt; the rest of the context, at most half of it, is the answer's."""
        context = self.parts.pool.context
        return context - min(self._sampling().max_tokens or context // 4, context // 2)

    def _failed(self, turn: int, kind: Kind, error: DpfError) -> Steps:
        if kind is Kind.DRAFT:
            return  # the final transcript meets the same error, and only then somebody waits for an answer
        yield from self.io.map("sink", Kind.FAILED, describe(error, "llm"), turn=turn, last=True)
