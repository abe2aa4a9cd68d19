# SPDX-License-Identifier: Apache-2.0
"""The form of what examples/voice/demo.py prints, for the README's copy and for a real run: text in, turns out."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["MARKS", "Turn", "turns_of"]

MARKS = {
    "endpoint decided", "words recognised", "first words of the answer", "first sound of the answer",
    "answer complete",
}  # fmt: skip
_TURN = re.compile(
    r"^question (?P<number>\d+): (?P<asked>.+)\n  heard:  (?P<heard>.+)\n  answer: (?P<answer>.+)\n"
    r"(?P<marks>(?:  +-?\d+ ms  \(\+ *-?\d+\)  .+\n)+)"
    r"  +(?P<seconds>\d+\.\d\d) s   of speech in .*answer(?P=number)\.wav$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Turn:
    """One question of a demo; `marks` in the order they were printed."""

    asked: str
    heard: str
    answer: str
    seconds: float
    marks: tuple[str, ...]


def turns_of(text: str) -> list[Turn]:
    """The turns in a demo's output; AssertionError when a line has another form or the count is another."""
    assert re.search(r"^ready to talk \d+\.\d\d s after the command was typed$", text, re.MULTILINE)
    found = list(_TURN.finditer(text))
    assert [int(one["number"]) for one in found] == list(range(1, len(found) + 1))
    end = f"{len(found)} of {len(found)} spoken questions got a spoken answer"
    assert found
    assert end in text.splitlines()
    turns = []
    for one in found:
        marks = tuple(line.partition(")  ")[2] for line in one["marks"].splitlines())
        assert set(marks) == MARKS
        turns.append(Turn(one["asked"], one["heard"], one["answer"], float(one["seconds"]), marks))
    return turns
