# SPDX-License-Identifier: Apache-2.0
"""What a person said in, a fixed answer out for what a small model answers badly, or None; it asks no model.

Patterns are regular expressions over the words in lower case without punctuation; one must match all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpfedge.errors import ConfigError
from dpfedge.stage.llm.arithmetic import answer_sum

__all__ = ["Replies", "plain_words"]

_APOSTROPHES = re.compile("[’‘`]")
_NOT_WORDS = re.compile(r"[^a-z0-9' ]+")
_FILLERS = re.compile(r"^(?:(?:um+|uh+|er+|well|so|okay|ok|hey car|please)\b ?)+|(?: please)+$")


def plain_words(text: str) -> str:
    """The words in lower case, one space between them, without punctuation and fillers at the ends."""
    text = _NOT_WORDS.sub(" ", _APOSTROPHES.sub("'", text.lower()))
    return _FILLERS.sub("", " ".join(text.split())).strip()


class Replies:
    """Fixed answers, decided before the model is asked."""

    def __init__(self, rules: Sequence[Mapping[str, Any]], *, sums: bool) -> None:
        self._sums = sums
        self._rules = [(self._compiled(rule, index), _list(rule["say"])) for index, rule in enumerate(rules)]

    @staticmethod
    def _compiled(rule: Mapping[str, Any], index: int) -> re.Pattern[str]:
        try:
            return re.compile("|".join(f"(?:{pattern})" for pattern in _list(rule["match"])))
        except re.error as error:
            where = f"stage llm: replies[{index}].match"
            raise ConfigError("not a regular expression", where=where, found=str(error)) from error

    def find(self, text: str, turn: int) -> str | None:
        """The answer to `text`, or None. Where a rule has several, the turn's number chooses."""
        words = plain_words(text)
        for pattern, said in self._rules:
            if pattern.fullmatch(words):
                return said[(turn - 1) % len(said)]
        return answer_sum(text) if self._sums else None


def _list(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
