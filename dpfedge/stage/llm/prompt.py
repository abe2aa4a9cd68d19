# SPDX-License-Identifier: Apache-2.0
"""Who the assistant is and what was said before in, a prompt's tokens out; it runs no model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from dpfedge.errors import ContextLengthError
from dpfedge.records import dataclass
from dpfedge.stage.llm.cache import common_prefix
from dpfedge.stage.llm.template import ChatTemplate, check_messages
from dpfedge.stage.llm.tokenizer import Tokenizer

__all__ = ["Conversation", "Prompts", "opening"]

Message = Mapping[str, str]

_KEPT_AFTER_TRIM = 0.6  # share of the room the history may fill after trimming, so that not every turn trims again


def opening(system: str, examples: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The messages every conversation starts with."""
    messages = [{"role": "system", "content": system}] if system else []
    for example in examples:
        messages.append({"role": "user", "content": example["user"]})
        messages.append({"role": "assistant", "content": example["assistant"]})
    return messages


class Prompts:
    """Messages → tokens, with exactly the BOS tokens the model was trained with."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer, bos: int | None) -> None:
        """`bos` is the token that must lead when the template does not write it; None: none is added."""
        self._template, self._tokenizer, self._bos = template, tokenizer, bos

    def tokens(self, messages: Sequence[Message], *, answer: bool = True) -> list[int]:
        """The prompt's token ids."""
        tokens = self._tokenizer.encode(self._template.render(messages, answer=answer))
        if self._bos is not None and tokens[:1] != [self._bos]:
            tokens.insert(0, self._bos)
        return tokens

    def newest(self, messages: Sequence[Message], tokens: Sequence[int]) -> int:
        """Where the text of the last of `messages` begins in their `tokens`."""
        return common_prefix(self.shared(messages[:-1]), tokens)

    def shared(self, messages: Sequence[Message]) -> list[int]:
        """The tokens that every prompt beginning with `messages` begins with."""
        ends = [self.tokens([*messages, {"role": "user", "content": word}]) for word in ("a", "Zz")]
        return ends[0][: common_prefix(*ends)]


@dataclass(slots=True)
class _Entry:
    role: str
    content: str
    turn: int


@dataclass(slots=True)
class Conversation:
    """What was said, oldest first, after an opening that never changes."""

    opening: Sequence[Message]
    entries: list[_Entry] = field(default_factory=list)
    turns: int | None = None
    """How many earlier turns a prompt holds; None: as many as fit."""

    @classmethod
    def of(cls, opening: Sequence[Message], history: Any, turns: int | None = None) -> Conversation:
        """With the history a session brings along; InputError names the message that is wrong."""
        known = check_messages(history) if history else []
        return cls(opening, [_Entry(message["role"], message["content"], -1) for message in known], turns)

    def copy(self) -> Conversation:
        """A conversation that may be changed without changing this one."""
        return Conversation(self.opening, list(self.entries), self.turns)

    def add(self, role: str, content: str, turn: int) -> None:
        """Append what `role` said in `turn`."""
        self.entries.append(_Entry(role, content, turn))

    def heard(self, turn: int, words: str) -> None:
        """Of the answer of `turn` only `words` were heard; nothing heard was never said."""
        kept = [entry for entry in self.entries if (entry.turn, entry.role) != (turn, "assistant")]
        place = next((index for index, entry in enumerate(kept) if entry.turn > turn), len(kept))
        if words:
            kept.insert(place, _Entry("assistant", words, turn))
        self.entries = kept

    @property
    def asked(self) -> bool:
        """Whether the newest entry is the person's."""
        return bool(self.entries) and self.entries[-1].role == "user"

    def messages(self, start: int = 0) -> list[Message]:
        """Opening and entries, those from `start` on, as chat messages."""
        kept = self.entries[start:]
        return [*self.opening, *({"role": entry.role, "content": entry.content} for entry in kept)]

    def _forget_turns(self) -> None:
        """Keep the newest message of the person and `turns` turns before it."""
        asked = [index for index, entry in enumerate(self.entries) if entry.role == "user"]
        if self.turns is not None and len(asked) > self.turns + 1:
            del self.entries[: asked[-self.turns - 1]]

    def fit(self, prompts: Prompts, room: int) -> list[int]:
        """The prompt's tokens, at most `room`; the oldest entries are forgotten for that, the last one never."""
        self._forget_turns()
        tokens = prompts.tokens(self.messages())
        if len(tokens) <= room:
            return tokens
        self.forget(prompts, room)
        tokens = prompts.tokens(self.messages())
        if len(tokens) > room:
            raise ContextLengthError(
                "one message is longer than the context",
                stage="llm",
                found=f"{len(tokens)} tokens",
                allowed=f"{room} tokens",
            )
        return tokens

    def forget(self, prompts: Prompts, room: int) -> None:
        """Forget the oldest entries, so that the prompt of the others leaves some of `room`; the last one never."""
        last = len(self.entries) - 1
        starts = [index for index, entry in enumerate(self.entries) if entry.role == "user" and 0 < index < last]
        # by bisection: a client may have typed thousands of entries, and others wait for their next token meanwhile
        first = bisect_left(
            starts, True, key=lambda start: len(prompts.tokens(self.messages(start))) <= room * _KEPT_AFTER_TRIM
        )
        del self.entries[: [*starts, last][first]]
