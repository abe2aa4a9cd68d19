# SPDX-License-Identifier: Apache-2.0
"""How the next token is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.errors import InputError, StageError
from dpfedge.stage.llm.sampling import Sampler, Sampling


def logits(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_next__takes_the_best() -> None:
    """Temperature 0."""
    assert Sampler(Sampling(), []).next(logits(0, 3, 2)) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_next__logits_that_are_no_numbers(bad: float, temperature: float) -> None:
    """An error, never token 0."""
    with pytest.raises(StageError, match="no numbers"):
        Sampler(Sampling(temperature=temperature), []).next(logits(0, bad, 2))


def test_next__masked_tokens_are_fine() -> None:
    """−inf rules a token out; only when all are, nothing is left to choose."""
    assert Sampler(Sampling(), []).next(logits(-np.inf, 1)) == 1
    with pytest.raises(StageError):
        Sampler(Sampling(), []).next(logits(-np.inf, -np.inf))


def test_next__repeat_penalty_divides_positive_and_multiplies_negative() -> None:
    """llama.cpp's formula, over prompt and answer, inside the window only."""
    values = logits(2.0, 1.9, -1.0, 0)
    Sampler(Sampling(repeat_penalty=1.1), [0, 2]).next(values)
    np.testing.assert_allclose(values, [2.0 / 1.1, 1.9, -1.1, 0], rtol=1e-6)
    sampler = Sampler(Sampling(repeat_penalty=1.5, repeat_window=2), [3, 0, 1])
    values = logits(2, 2, 2, 2)
    assert sampler.next(values) == 2
    np.testing.assert_allclose(values, [2 / 1.5, 2 / 1.5, 2, 2], rtol=1e-6)
    values = logits(2, 2, 2, 2)
    sampler.next(values)
    np.testing.assert_allclose(values, [2, 2 / 1.5, 2 / 1.5, 2], rtol=1e-6)


def test_next__presence_and_frequency_count_the_answer_only() -> None:
    """OpenAI's formula; the prompt does not count."""
    sampler = Sampler(Sampling(presence_penalty=0.5, frequency_penalty=0.25), [1, 1])
    assert [sampler.next(logits(1.0, 0.9, 0.0)) for _ in range(3)] == [0, 1, 0]
    values = logits(1.0, 0.9, 0.0)
    sampler.next(values)
    np.testing.assert_allclose(values, [1 - 1.0, 0.9 - 0.75, 0], atol=1e-6)


def test_next__same_seed_same_tokens() -> None:
    """And another seed gives others."""
    rows = np.random.default_rng(0).normal(0, 1, (50, 100)).astype(np.float32)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed), [])
        return [sampler.next(row.copy()) for row in rows]

    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_next__draws_as_often_as_the_softmax_says() -> None:
    """Frequencies of 4000 draws."""
    sampler = Sampler(Sampling(temperature=0.5, seed=1), [])
    counts = np.bincount([sampler.next(logits(0, 0.5, 1.0)) for _ in range(4000)], minlength=3) / 4000
    wanted = np.exp(np.array([0, 1.0, 2.0])) / np.exp(np.array([0, 1.0, 2.0])).sum()
    np.testing.assert_allclose(counts, wanted, atol=0.03)


def test_next__top_p_keeps_the_smallest_set() -> None:
    """Probabilities .6 .3 .1: top_p .5 keeps one, .7 two."""
    row = np.log(np.array([0.3, 0.6, 0.1])).astype(np.float32)
    for top_p, kept in ((0.5, {1}), (0.7, {0, 1}), (1.0, {0, 1, 2})):
        sampler = Sampler(Sampling(temperature=1.0, top_p=top_p, seed=3), [])
        assert {sampler.next(row.copy()) for _ in range(300)} == kept


def test_with_request__none_means_the_default() -> None:
    """What a request leaves out comes from the package."""
    default = Sampling(temperature=0.5, repeat_penalty=1.1)
    assert default.with_request(None) is default
    wanted = Sampling(temperature=0.5, repeat_penalty=1.1, stop=("x",))
    assert default.with_request({"temperature": None, "stop": "x"}) == wanted


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"temperature": 3}, r"sampling\.temperature: out of range"),
        ({"temperature": "hot"}, r"sampling\.temperature"),
        ({"top_p": -0.1}, r"sampling\.top_p"),
        ({"max_tokens": 0}, r"sampling\.max_tokens"),
        ({"max_tokens": True}, r"sampling\.max_tokens"),
        ({"stop": [""]}, r"sampling\.stop"),
        ({"stop": 5}, r"sampling\.stop"),
        ({"stop": ["a"] * 99}, r"sampling\.stop"),
        ({"beams": 4}, r"sampling\.beams: unknown setting"),
        ("hot", "sampling: must be an object"),
    ],
)
def test_with_request__names_what_is_wrong(given: object, where: str) -> None:
    """HTTP 400 with the field."""
    with pytest.raises(InputError, match=where):
        Sampling().with_request(given)
