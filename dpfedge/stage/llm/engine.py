# SPDX-License-Identifier: Apache-2.0
"""A prompt's tokens in, an answer's text out, one bounded step at a time; it knows no request and sends nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from dpfedge.errors import ContextLengthError
from dpfedge.stage.llm.cache import Place, common_prefix
from dpfedge.stage.llm.sampling import Sampler, Sampling
from dpfedge.stage.llm.stops import StopFinder
from dpfedge.stage.llm.tokenizer import Tokenizer

__all__ = ["Answer", "answer_room", "prefill"]

_BLOCK = 32  # tokens; most spoken questions are one block, and a longer dictation does not start again with each draft


def answer_room(prompt: int, asked: int | None, default: int | None, context: int) -> int:
    """How many tokens the answer may have; ContextLengthError when prompt and the tokens asked for do not fit."""
    if prompt >= context or (asked is not None and prompt + asked > context):
        wanted = f"{prompt} prompt tokens" + (f" and {asked} answer tokens" if asked is not None else "")
        raise ContextLengthError(
            "the context is too short for this request",
            stage="llm",
            found=wanted,
            allowed=f"{context} tokens together",
            remedy="send fewer messages or ask for fewer tokens",
        )
    return min(context - prompt, asked or default or context)


def prefill(place: Place, tokens: Sequence[int], chunk: int, newest: int) -> Iterator[int]:
    """Make `place` hold exactly `tokens` with the logits behind them; yields the tokens run after each chunk.

    What the place shares with `tokens` is kept. Logits differ in their last bits with the number of tokens run at once,
    so the newest message, which begins at `newest`, always runs in the same blocks and is kept in whole blocks only:
    then neither a draft nor what else the place held changes the answer.
    """
    if place.holds(tokens):
        return
    block = min(_BLOCK, chunk)
    kept = min(common_prefix(place.tokens, tokens), len(tokens) - 1)
    place.keep(kept if kept <= newest else newest + (kept - newest) // block * block)
    while (start := len(place.tokens)) < len(tokens):
        if newest - start > block:
            stop = min(start + chunk, newest)
        else:
            stop = min(start + chunk, newest + block * (max(0, start - newest) // block + 1))
        place.run(tokens[start:stop])
        yield len(place.tokens) - start


class Answer:
    """One answer being generated on a prefilled place."""

    def __init__(self, place: Place, tokenizer: Tokenizer, ends: frozenset[int], sampling: Sampling, room: int) -> None:
        self._place, self._ends, self._room = place, ends, room
        self._sampler = Sampler(sampling, place.tokens)
        self._text = tokenizer.detokeniser()
        self._stops = StopFinder(sampling.stop)
        self._next: int | None = None
        self.count = 0
        self.finish: str | None = None
        self.first_token_ns = self.last_token_ns = 0

    def step(self) -> str:
        """Choose one token (running the one before it) and return the text that is certain now, perhaps none.

        `finish` is set at the end: `stop` (end token or stop string) or `length`.
        """
        if self._next is not None:
            self._place.run((self._next,))
        token = self._sampler.next(self._place.logits())
        self.last_token_ns = time.monotonic_ns()
        self.first_token_ns = self.first_token_ns or self.last_token_ns
        if token in self._ends:
            return self._end("stop", "")
        self._next, self.count = token, self.count + 1
        text = self._stops.push(self._text.push(token))
        if self._stops.found:
            self.finish = "stop"
            return text
        return self._end("length", text) if self.count >= self._room else text

    def _end(self, finish: str, text: str) -> str:
        text += self._stops.push(self._text.finish())
        text += self._stops.finish()
        self.finish = "stop" if self._stops.found else finish
        return text
