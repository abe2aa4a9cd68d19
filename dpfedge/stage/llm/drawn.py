# SPDX-License-Identifier: Apache-2.0
"""The llm inside a drawn graph: texts that other stages found and questions in, one answer after another out.

What belongs to what in time is the pipeline's `sync` to say; without it, a question is asked of the newest text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpfedge.errors import InputError
from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.each import Inbox, ending
from dpfedge.stage.join import Join, Sync
from dpfedge.stage.llm.engine import Answer, answer_room
from dpfedge.stage.llm.turns import Asked, Parts, Report
from dpfedge.stage.sets import join_message

__all__ = ["Drawn"]

_WHEN = ("each", "end")


class Drawn(Asked):
    """Options: `question`, asked of every text where no stage asks; `answer`: `each` text, or the last at the `end`."""

    def __init__(self, parts: Parts, io: RequestIO, sync: Sync | None) -> None:
        super().__init__(parts, io)
        self._question = _option(io.options, "question", "")
        self._when = _option(io.options, "answer", "each")
        if self._when not in _WHEN:
            raise InputError("unknown value", stage="llm", where="answer", found=self._when, allowed=", ".join(_WHEN))
        self._asked = "question" in io.inputs
        self._join: Join[Message] | None = sync.join(sorted(io.inputs)) if sync is not None else None
        self._text, self._count = "", 0

    def run(self) -> Steps:
        """Until every input has ended; the report counts answers."""
        self.place = self.parts.pool.take(self.parts.shared)
        inbox = Inbox(self.io)
        try:
            yield from self._open(self.place)
            yield from self._listen(inbox)
            if self._when == "end":
                yield from self._answer(self._text, self._question)
            if self.io.has("clauses"):
                yield from self.io.text("clauses", Kind.END, "", turn=0, last=True)
            yield from self.io.map("sink", Kind.DONE, {"answers": self._count, **self._dropped()}, turn=0, last=True)
        finally:
            inbox.close()
            if self._join is not None:
                self._join.close()
            self.parts.pool.give(self.place)

    def _listen(self, inbox: Inbox) -> Steps:
        while inbox.open:
            message = inbox.next()
            if message is None:
                yield Wait.INPUT
            elif message.kind is not Kind.DATA and message.kind is not Kind.TEXT:
                with ending(message):
                    inbox.mark(message)
                    if message.kind is Kind.END and self._join is not None:
                        self._join.end(message.port)
                yield from self._sets()
            elif self._join is not None:
                join_message(self._join, message, "llm")
                yield from self._sets()
            else:
                yield from self._hear(message)

    def _sets(self) -> Steps:
        while self._join is not None and (found := self._join.take()) is not None:
            question = found["question"].text() if self._asked else self._question
            yield from self._answer(found["text"].text() if "text" in found else "", question)

    def _hear(self, message: Message) -> Steps:
        with ending(message):
            port, text = message.port, message.text()
        if port == "question":
            yield from self._answer(self._text, text)
            return
        self._text = text
        if not self._asked and self._when == "each":
            yield from self._answer(text, self._question)

    def _answer(self, text: str, question: str) -> Steps:
        """Nothing to read and nothing asked is no question."""
        asked = self.parts.settings.prompt.replace("{text}", text).replace("{question}", question).strip()
        if not text.strip() and not (self._asked and question.strip()):
            return
        self._count += 1
        self.said, report, turn = "", Report(), self._count
        messages = [*(dict(message) for message in self.parts.opening), {"role": "user", "content": asked}]
        tokens, sampling = self.parts.prompts.tokens(messages), self._sampling()
        room = answer_room(len(tokens), None, sampling.max_tokens, self.parts.pool.context)
        assert self.place is not None
        yield from self._prefill(self.place, messages, tokens, turn, report)
        if not self.io.cancelled(turn):
            answer = Answer(self.place, self.parts.tokenizer, self.parts.ends, sampling, room)
            yield from self._generate(answer, turn, report)
        yield from self._done(turn, report)

    def _dropped(self) -> dict[str, Any]:
        counts = {} if self._join is None else self._join.counts
        return {"dropped": {port: row.dropped for port, row in counts.items()}} if counts else {}


def _option(options: Mapping[str, Any], name: str, default: str) -> str:
    value = options.get(name, default)
    if not isinstance(value, str):
        raise InputError("must be a string", stage="llm", where=name, found=type(value).__name__)
    return value
