# SPDX-License-Identifier: Apache-2.0
"""An answer's text as it grows in, clauses fit for speech out: no markdown, code, pictures or thinking.

Where a clause may end is `dpfedge.stage.voice.clauses`' knowledge; how a word sounds is the voice stage's.
"""

from __future__ import annotations

import re
import unicodedata

from dpfedge.stage.voice.clauses import ClauseCutter
from dpfedge.stage.voice.text import speakable

__all__ = ["Clauses", "SpeechFilter"]

_SPECIAL = re.compile(r"[<>`\[\]!*_~#|\n•+-]")
_TAG = re.compile(r"</?[A-Za-z][A-Za-z0-9]{0,20}(?:\s+[\w:-]+=[^<>\n]{0,60})?\s*/?>")
_TAG_BEGIN = re.compile(r"<(/?([A-Za-z][^<>\n]{0,60})?)?$")
_LABEL_BEGIN = re.compile(r"\[[^\[\]\n]{0,200}(\](\([^()\n]{0,500})?)?$")
_LINK = re.compile(r"\[([^\[\]\n]{0,200})\]\([^()\n]{0,500}\)")
_THINK = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_PICTURES = frozenset(("So", "Sk", "Cf", "Co", "Cs", "Cn", "Me"))
_KEPT = frozenset("°")


class SpeechFilter:
    """Passes on what is to be spoken; holds back only what later text may still turn into markup."""

    def __init__(self) -> None:
        self._text = ""
        self._until: str | None = None
        self._line_start = self._space = True
        self._digit = False

    def push(self, text: str) -> str:
        """The text to speak that is certain now."""
        self._text += text
        return self._drain(final=False)

    def finish(self) -> str:
        """The text still held back, with markup that never closed taken as text; the answer is over."""
        return self._drain(final=True)

    def _drain(self, *, final: bool) -> str:
        shown: list[str] = []
        while self._text:
            if self._until is not None:
                if not self._skip(self._until):
                    break
                continue
            mark = _SPECIAL.search(self._text)
            plain = self._text[: mark.start()] if mark else self._text
            shown.append(self._show(plain))
            self._text = self._text[len(plain) :]
            if mark:
                size = self._markup(final=final, shown=shown)
                if size == 0:
                    break
                self._text = self._text[size:]
        return "".join(shown)

    def _skip(self, end: str) -> bool:
        """Drop text up to `end`; False while it has not come."""
        place = self._text.lower().find(end)
        if place < 0:
            self._text = self._text[max(0, len(self._text) - len(end) + 1) :]
            return False
        self._text, self._until = self._text[place + len(end) :], None
        return True

    def _markup(self, *, final: bool, shown: list[str]) -> int:
        """How many characters at the start are dealt with; 0: wait for more."""
        text = self._text
        if text[0] == "<":
            return self._tag(text, final=final, shown=shown)
        if text[0] == "`":
            return self._code(text, final=final)
        if text[0] == "[" or text.startswith("!["):
            return self._link(text, final=final, shown=shown)
        if len(text) == 1 and not final and text[0] in "!#*-+•":
            return 0
        shown.append(self._show(self._sign(text[0], text[1:2])))
        return 1

    def _sign(self, sign: str, after: str) -> str:
        """What one character that may be markup says, given the next one."""
        if sign in "-+•":
            return "" if self._line_start and after.isspace() else sign
        if sign == "#" and not self._line_start and after.isdigit():
            return "number "
        if sign == "*" and self._digit and after.isdigit():
            return " times "
        return sign if sign in "!\n" else " " if sign in "_|>" else ""

    def _tag(self, text: str, *, final: bool, shown: list[str]) -> int:
        if found := _TAG.match(text):
            if think := _THINK.match(text):
                self._until = f"</{think[1].lower()}>"
            return found.end()
        if _TAG_BEGIN.match(text) and not final:
            return 0
        shown.append(self._show(" "))
        return 1

    def _code(self, text: str, *, final: bool) -> int:
        run = len(text) - len(text.lstrip("`"))
        if run == len(text) and run < 3 and not final:
            return 0
        if run >= 3:
            self._until = "```"
        return run

    def _link(self, text: str, *, final: bool, shown: list[str]) -> int:
        start = 1 if text[0] == "!" else 0
        if found := _LINK.match(text, start):
            shown.append(self._show(found[1]))
            return found.end()
        return 0 if _LABEL_BEGIN.match(text[start:]) and not final else start + 1

    def _show(self, text: str) -> str:
        """`text` without pictures, spaces and empty lines run together."""
        shown: list[str] = []
        for char in text:
            if not char.isascii() and char not in _KEPT and unicodedata.category(char) in _PICTURES:
                char = " "
            if char == "\n":
                if not self._line_start:
                    shown.append("\n")
                self._line_start = self._space = True
            elif not char.isspace():
                shown.append(char)
                self._line_start = self._space = False
            elif not self._space:
                shown.append(" ")
                self._space = True
        self._digit = shown[-1].isdigit() if shown else self._digit
        return "".join(shown)


class Clauses:
    """`SpeechFilter` and `ClauseCutter` in a row: what comes out is spoken as it is."""

    def __init__(self, first_words: int, later_words: int) -> None:
        self._filter = SpeechFilter()
        self._cutter = ClauseCutter(first_words, later_words)

    def push(self, text: str) -> list[str]:
        """The clauses that `text` completes; each holds something to say."""
        return self._whole(self._cutter.push(self._filter.push(text)))

    def finish(self) -> list[str]:
        """The last clauses."""
        found = self._cutter.push(self._filter.finish())
        return self._whole([*found, self._cutter.finish()])

    @staticmethod
    def _whole(clauses: list[str]) -> list[str]:
        return [clause.lstrip() for clause in clauses if speakable(clause)]
