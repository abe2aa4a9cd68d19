# SPDX-License-Identifier: Apache-2.0
"""Answers, step by step, on the toy decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.errors import ContextLengthError, StageError
from dpfedge.stage.llm.cache import Pool
from dpfedge.stage.llm.engine import Answer, answer_room, prefill
from dpfedge.stage.llm.sampling import Sampling
from dpfedge.stage.llm.tokenizer import Library, Tokenizer

END = 2


@pytest.fixture
def answer(graph: Callable[..., Any], assets: dict[str, bytes], ids: Callable[[str], list[int]]) -> Callable[..., Any]:
    """`answer(tokens, room=…, stop=…)`: the deltas and the Answer of a model that says `tokens` after a new line."""

    def run(tokens: list[int], room: int = 50, stop: tuple[str, ...] = ()) -> tuple[list[str], Answer]:
        place = Pool(graph([*ids("\n"), *tokens]), places=1, chunk=8).take(())
        for _ in prefill(place, ids("hey\n"), 8, 0):
            pass
        made = Answer(place, Tokenizer(Library(assets["tokenizer.json"])), frozenset((END,)), Sampling(stop=stop), room)
        deltas = []
        while made.finish is None:
            deltas.append(made.step())
        return deltas, made

    return run


def test_step__until_the_end_token(answer: Callable[..., Any], ids: Callable[[str], list[int]]) -> None:
    """The end token is not counted and not shown."""
    deltas, made = answer([*ids("Fine, it is"), END])
    assert ("".join(deltas), made.finish, made.count) == ("Fine, it is", "stop", 4)
    assert made.first_token_ns <= made.last_token_ns


@pytest.mark.parametrize("room", [1, 2, 3])
def test_step__until_the_room_is_used(answer: Callable[..., Any], ids: Callable[[str], list[int]], room: int) -> None:
    """`length`, with exactly that many tokens."""
    deltas, made = answer([*ids("Fine, it is warm"), END], room=room)
    assert (made.finish, made.count, len(deltas)) == ("length", room, room)


def test_step__stop_string_over_tokens(answer: Callable[..., Any], ids: Callable[[str], list[int]]) -> None:
    """The text ends before it, though its tokens were made."""
    deltas, made = answer([*ids("Fine, it is warm"), END], stop=("t is w",))
    assert ("".join(deltas), made.finish) == ("Fine, i", "stop")


def test_step__character_cut_by_the_room(answer: Callable[..., Any], ids: Callable[[str], list[int]]) -> None:
    """Half a character becomes U+FFFD only at the very end."""
    deltas, made = answer([*ids("é"), END], room=1)
    assert ("".join(deltas), made.finish) == ("\ufffd", "length")


def test_step__logits_that_are_no_numbers(answer: Callable[..., Any], ids: Callable[[str], list[int]]) -> None:
    """The step that meets them fails; nothing is made of them."""
    with pytest.raises(StageError, match="no numbers"):
        answer([*ids("Fine"), -1])


@pytest.mark.parametrize(
    ("prompt", "asked", "default", "room"),
    [(10, None, None, 90), (10, 20, 5, 20), (10, None, 20, 20), (95, None, 20, 5), (99, 1, None, 1)],
)
def test_answer_room__fits_the_context(prompt: int, asked: int | None, default: int | None, room: int) -> None:
    """What was asked for, or the default as far as it fits."""
    assert answer_room(prompt, asked, default, 100) == room


@pytest.mark.parametrize(
    ("prompt", "asked", "shown"),
    [(100, None, "100 prompt"), (1000, None, "1000 prompt"), (99, 2, "99 prompt.*2 answer")],
)
def test_answer_room__too_long_names_both_sizes(prompt: int, asked: int | None, shown: str) -> None:
    """HTTP 400 context_length_exceeded."""
    with pytest.raises(ContextLengthError, match=f"{shown}.*allowed 100 tokens"):
        answer_room(prompt, asked, None, 100)
