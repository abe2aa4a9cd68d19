# SPDX-License-Identifier: Apache-2.0
"""What of an answer is spoken, and in which pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.stage.llm.clauses import Clauses, SpeechFilter


def spoken(text: str, step: int) -> str:
    filter = SpeechFilter()
    return "".join(filter.push(text[start : start + step]) for start in range(0, len(text), step)) + filter.finish()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**Turn** left `x` <think>secret</think> [map](http://a) 😀", "Turn left x map "),
        ("# Title\n- one\n* two\n1. go\n", "Title\none\ntwo\n1. go\n"),
        ("a\n```py\nprint('secret')\n```\nb", "a\nb"),
        ("![pic](a.png) ok! [oops", "pic ok! oops"),
        ("<thinking>a <b> c</thinking>hi", "hi"),
        ("<think>never closed", ""),
        ("snake_case, *it* and ~~gone~~", "snake case, it and gone"),
        ("It's #1 in 5*4 & 3 < 4", "It's number 1 in 5 times 4 & 3 4"),
        ("-5 degrees - cold, well-known", "-5 degrees - cold, well-known"),
        ("What?! (Yes) 20°C", "What?! (Yes) 20°C"),
        ("<b>bold</b> > quote", "bold quote"),
        ("日本 é", "日本 é"),
    ],
)
def test_filter__leaves_words_only(text: str, said: str, step: int) -> None:
    """The same for any split of the text into tokens."""
    assert spoken(text, step) == said


@given(st.text(alphabet="ab 1.<>`[]()*#-\n!_", max_size=60), st.integers(1, 7))
def test_filter__any_split_says_the_same(text: str, step: int) -> None:
    """Tokens' borders never change what is said."""
    assert spoken(text, step) == spoken(text, 1000)


def test_clauses__each_has_something_to_say() -> None:
    """Pieces without a word are not sent to the voice."""
    clauses = Clauses(7, 14)
    found = [
        clause
        for token in ("Go left", ",", " now", ".", "\n", "\n", "Then 3", ".", "5 miles")
        for clause in clauses.push(token)
    ]
    assert [*found, *clauses.finish()] == ["Go left,", "now.", "Then 3.5 miles"]
