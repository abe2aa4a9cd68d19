# SPDX-License-Identifier: Apache-2.0
"""Where a growing text may be cut for speech."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.stage.voice.clauses import ClauseCutter, ends_sentence


def cut(text: str, step: int = 3, words: tuple[int, int] = (7, 14)) -> list[str]:
    cutter = ClauseCutter(*words)
    clauses = [clause for start in range(0, len(text), step) for clause in cutter.push(text[start : start + step])]
    return [*clauses, rest] if (rest := cutter.finish()) else clauses


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (
            "Paris is the capital, and it lies on the Seine. Nice!",
            ["Paris is the capital,", " and it lies on the Seine.", " Nice!"],
        ),
        ("It is 3.5 litres. At 10:30 we go.", ["It is 3.5 litres.", " At 10:30 we go."]),
        ("Dr. Smith is here. J. R. too.", ["Dr. Smith is here.", " J. R. too."]),
        ("Yes, it does.", ["Yes, it does."]),
        ("See google.com for 1,000 more. OK?", ["See google.com for 1,000 more.", " OK?"]),
        ("one two\nthree", ["one two\n", "three"]),
        ('He said "go." Then he left.', ['He said "go."', " Then he left."]),
        ("...", ["..."]),
    ],
)
def test_cutter__cuts_at_punctuation_only_where_a_clause_ends(text: str, clauses: list[str]) -> None:
    """Numbers, abbreviations, initials and addresses stay whole."""
    assert cut(text) == clauses


@pytest.mark.parametrize("step", [1, 2, 5, 100])
def test_cutter__gives_the_same_clauses_for_any_split(step: int) -> None:
    """The tokens' borders do not move a cut."""
    text = "The engine needs oil that is clean and fresh so change it every ten thousand miles or once a year at least."
    assert cut(text, step) == cut(text, 1)


def test_cutter__long_clause_ends_on_a_strong_word() -> None:
    """Without punctuation the first clause ends before a word that leans on the next."""
    first, *rest = cut("The engine of your car needs oil that is fresh and clean today my friend", words=(5, 14))
    assert first == "The engine of your car"
    assert "".join(rest).startswith(" needs")


def test_cutter__text_without_spaces_is_bounded() -> None:
    """A script without spaces cannot grow a clause for ever."""
    clauses = cut("x" * 1500, step=50)
    assert max(map(len, clauses)) <= 450
    assert "".join(clauses) == "x" * 1500


@given(st.text(alphabet="ab .,;:!?\n-1\"'…é日", max_size=120), st.integers(1, 9))
def test_cutter__loses_no_character(text: str, step: int) -> None:
    """The clauses joined are the text."""
    assert "".join(cut(text, step)) == text


@pytest.mark.parametrize(
    ("clause", "ends"), [("a.", True), ("a,", False), ("a\n", True), ('a?" ', True), ("a", False), ("", False)]
)
def test_ends_sentence__by_its_last_mark(clause: str, ends: bool) -> None:
    """Full stop, question mark, exclamation mark or line end."""
    assert ends_sentence(clause) is ends
