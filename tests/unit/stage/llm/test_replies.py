# SPDX-License-Identifier: Apache-2.0
"""Fixed answers."""

from __future__ import annotations

import pytest

from dpfedge.errors import ConfigError
from dpfedge.stage.llm.replies import Replies, plain_words

RULES = [
    {"match": ["(hi|hello)( there)?", "good morning"], "say": ["Hello.", "Hi again."]},
    {"match": "who are you|what are you", "say": "I am your car's assistant."},
]


@pytest.mark.parametrize(
    ("text", "words"),
    [("Um, Hello   there!", "hello there"), ("Who’s that, please?", "who's that"), ("...", ""), ("Okay, so: go", "go")],
)
def test_plain_words__without_punctuation_and_fillers(text: str, words: str) -> None:
    """What a recogniser adds or a person hesitates with does not count."""
    assert plain_words(text) == words


def test_find__matches_all_words() -> None:
    """A pattern inside a longer sentence is none."""
    replies = Replies(RULES, sums=False)
    assert replies.find("Hello!", 1) == "Hello."
    assert replies.find("Good morning.", 2) == "Hi again."
    assert replies.find("Who are you?", 5) == "I am your car's assistant."
    assert replies.find("Hello, what is a volcano?", 1) is None
    assert replies.find("What is two plus two?", 1) is None


def test_find__sums_when_asked_for() -> None:
    """After the rules."""
    assert Replies([], sums=True).find("What is two plus two?", 1) == "2 plus 2 is 4."


def test_replies__broken_pattern() -> None:
    """The rule is named."""
    with pytest.raises(ConfigError, match=r"replies\[0\]\.match"):
        Replies([{"match": "(", "say": "x"}], sums=False)
