# SPDX-License-Identifier: Apache-2.0
"""A growing text in, clauses that can be spoken one by one out; it changes no character and speaks nothing."""

from __future__ import annotations

import re

__all__ = ["ClauseCutter", "ends_sentence"]

_MARK = re.compile(r"[,;:.!?…]+[\"'”’)\]]*|\n+|\s[–—-]\s|—")
_WORD = re.compile(r"\S+")
_ABBREVIATIONS = frozenset((
    "dr", "mr", "mrs", "ms", "prof", "st", "vs", "etc", "e.g", "i.e", "approx", "no", "vol", "fig", "jr", "sr",
    "inc", "ltd", "co", "dept", "mt", "a.m", "p.m", "u.s", "u.k",
))  # fmt: skip
_WEAK = frozenset((
    "a", "an", "the", "of", "to", "in", "on", "at", "by", "for", "from", "with", "and", "or", "but", "if", "as",
    "is", "are", "was", "were", "be", "that", "which", "who", "its", "his", "her", "their", "your", "my", "our",
    "this", "these", "those", "than", "not", "very",
))  # fmt: skip
"""Words that lean on the next one: a clause never ends on them when it must be cut without punctuation."""
_LONGEST = 400  # characters; text without a space (an address, a script without spaces) must not grow a clause for ever


def ends_sentence(clause: str) -> bool:
    """Whether the clause closes a sentence or a line."""
    return clause.rstrip(" ").endswith("\n") or clause.rstrip().rstrip("\"'”’)]")[-1:] in (".", "!", "?", "…")


class ClauseCutter:
    """Cuts at punctuation, or at a word boundary once a clause has `first_words` / `later_words` words.

    The clauses joined are the text pushed. Marks inside numbers (`3.5`, `10:30`), after abbreviations (`Dr.`) and after
    single letters cut nothing. A comma cuts only once the clause has `comma_words` words (2 for the first one).
    """

    def __init__(self, first_words: int, later_words: int, comma_words: int = 4) -> None:
        self._early, self._later, self._comma = first_words, later_words, comma_words
        self._text, self._first = "", True

    def push(self, text: str) -> list[str]:
        """The clauses that `text` completes, in order."""
        self._text += text
        found: list[str] = []
        while (end := self._boundary()) is not None:
            found.append(self._take(end))
        return found

    def finish(self) -> str:
        """The text left over; the cutter is empty and ready for the next text."""
        rest = self._take(len(self._text))
        self._first = True
        return rest

    def _take(self, end: int) -> str:
        clause, self._text = self._text[:end], self._text[end:]
        self._first = self._first and not clause.strip()
        return clause

    def _boundary(self) -> int | None:
        limit = self._early if self._first else self._later
        for mark in _MARK.finditer(self._text):
            words = len(_WORD.findall(self._text, 0, mark.start()))
            if words > limit:
                break
            if self._cuts(mark, words):
                return mark.end()
        return self._long(limit)

    def _cuts(self, mark: re.Match[str], words: int) -> bool:
        before, sign, after = self._text[: mark.start()], mark[0].strip(" "), self._text[mark.end() : mark.end() + 1]
        if not any(char.isalnum() for char in before):
            return False
        if "\n" in sign:
            return True
        if (sign[:1] in ".:" or before[-1:].isdigit()) and not after.isspace():
            return False
        if sign[:1] in ".!?…":
            return sign[:1] != "." or len(sign) > 1 or not _abbreviated(before)
        return words >= (2 if self._first else self._comma)

    def _long(self, limit: int) -> int | None:
        """Where a clause without punctuation ends: after its last word that does not lean on the next one."""
        words = list(_WORD.finditer(self._text))
        if len(words) <= limit:
            return _LONGEST if len(self._text) > _LONGEST else None
        strong = [match for match in words[:limit] if match[0].lower() not in _WEAK and not match[0][-1].isdigit()]
        return (strong[-1] if strong and strong[-1].start() > 0 else words[limit - 1]).end()


def _abbreviated(before: str) -> bool:
    last = before.rsplit(None, 1)[-1].lstrip("(\"'").lower()
    return last in _ABBREVIATIONS or (len(last) == 1 and last.isalpha() and last != "i")
