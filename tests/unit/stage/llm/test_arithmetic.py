# SPDX-License-Identifier: Apache-2.0
"""Spoken sums."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedge.stage.llm.arithmetic import answer_sum


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("What is seven times eight?", "7 times 8 is 56."),
        ("What's 12 plus 30?", "12 plus 30 is 42."),
        ("how much is fifteen percent of eighty", "15 percent of 80 is 12."),
        ("15% of 200", "15 percent of 200 is 30."),
        ("what is a hundred and five minus twenty-one?", "105 minus 21 is 84."),
        ("10 / 4", "10 divided by 4 is 2.5."),
        ("What is ten divided by three?", "10 divided by 3 is about 3.33."),
        ("2 plus 3 times 4", "2 plus 3 times 4 is 14."),
        ("what is minus five plus 3", "minus 5 plus 3 is minus 2."),
        ("two million times three", "2,000,000 times 3 is 6,000,000."),
        ("three point five plus one", "3.5 plus 1 is 4.5."),
        ("one divided by zero", "A number cannot be divided by zero."),
        ("7*8=", "7 times 8 is 56."),
        ("What is 9 times 9 equal?", "9 times 9 is 81."),
        ("nine hundred ninety nine thousand plus one", "999,000 plus 1 is 999,001."),
    ],
)
def test_answer_sum__says_the_result(asked: str, answer: str) -> None:
    """Digits and words, the four operations and percent, × and ÷ first."""
    assert answer_sum(asked) == answer


@pytest.mark.parametrize(
    "asked",
    [
        "What is the capital of France?",
        "seven",
        "what is one two plus three",
        "plus",
        "",
        "1 plus",
        "what is 2 and 2 plus",
        "99999999999999999999 plus 1",
        "999999999999999 times 999999999999999",
        "five apples plus two",
        "1 " + "plus 1 " * 20,
    ],
)
def test_answer_sum__leaves_the_rest_alone(asked: str) -> None:
    """What is no sum, or a larger one than anybody speaks."""
    assert answer_sum(asked) is None


@given(st.text(max_size=60))
def test_answer_sum__never_fails(asked: str) -> None:
    """Any text is either a sum or none."""
    answer_sum(asked)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_answer_sum__is_exact(first: int, second: int) -> None:
    """Against Python's integers."""
    assert (
        answer_sum(f"{first} times {second}") == f"{first:,} times {second:,} is {first * second:,}."
        or first * second > 10**15
    )
