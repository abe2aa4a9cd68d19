# SPDX-License-Identifier: Apache-2.0
"""A baked opening: the same bytes and the same answers as a computed one, and refused when anything differs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.binding.prefix import Candidate
from dpfedge.package.prefix import Baked, BakedPrefix
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.llm import LlmStage

SETTINGS = {"system": "Be brief and say what is warm.", "places": 2}
WORDS = ["hello", "is it warm", "one two three four one two three four"]


class Stored:
    """The section a prefix would lie in."""

    def __init__(self, baked: Baked) -> None:
        self.data = b"".join(baked.data)

    def section(self, name: str) -> memoryview:
        assert name == "prefix"
        return memoryview(self.data)

    def find(self, name: str) -> Any:
        raise AssertionError("not asked for")


@pytest.fixture
def model(attentive: Any) -> Any:
    """A bound toy whose attention really reads the memory."""
    return attentive


def stage(model: Any, **settings: Any) -> LlmStage:
    made = LlmStage(model, {**SETTINGS, **settings}, Budget())
    made.warm()
    return made


def bake(model: Any, **changes: Any) -> Baked:
    """Bake and offer the result to the model; `changes` are made to the record."""
    baked = stage(model).bake()
    assert baked is not None
    model.prefixes = [Candidate(replace(baked.record("prefix"), **changes), Stored(baked), "package")]
    return baked


def answer(stage: LlmStage, driver: Any, words: str) -> tuple[str, Mapping[str, Any]]:
    io = driver.IO(Mode.CHAT, {"messages": [{"role": "user", "content": words}]}, ["sink"])
    driver.drive(stage.request(io), io)
    return "".join(io.of(Kind.TEXT)), io.of(Kind.DONE)[0]


def test_baked__bytes_of_the_computed_prefix(model: Any) -> None:
    """What is mapped is what settling computes, bit for bit, and baking again gives the same section."""
    computed = stage(model)
    for _ in computed.settle():
        pass
    first = bake(model)
    mapped = stage(model)

    assert mapped.facts()["prefix"] == "package"
    prefixes = [made._parts.pool.prefix for made in (computed, mapped)]
    assert prefixes[0] is not None
    assert prefixes[1] is not None
    assert prefixes[0].tokens == prefixes[1].tokens
    for mine, theirs in zip(prefixes[0].memory, prefixes[1].memory, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    model.prefixes = []
    assert bake(model) == first


def test_baked__memory_is_mapped_not_copied(model: Any) -> None:
    """The stage's prefix reads the section's own bytes, which it cannot write."""
    baked = bake(model)
    prefix = stage(model)._parts.pool.prefix

    assert prefix is not None
    stored = np.frombuffer(model.prefixes[0].sections.data, np.uint8)
    assert all(np.shares_memory(array, stored) for array in prefix.memory)
    assert not any(array.flags.writeable for array in prefix.memory)
    assert len(baked.memory) == len(prefix.memory)


def test_baked__answers_equal_token_by_token(model: Any, driver: Any) -> None:
    """First and later turns say the same and reuse as much, with and without the baked prefix."""
    computed = stage(model)
    for _ in computed.settle():
        pass
    bake(model)
    mapped = stage(model)
    for words in WORDS:
        (text, report), (wanted, reference) = answer(mapped, driver, words), answer(computed, driver, words)
        assert (text, report["cached_tokens"]) == (wanted, reference["cached_tokens"])
        assert report["cached_tokens"] > 0


def test_baked__logits_equal_bit_by_bit(model: Any, driver: Any) -> None:
    """The numbers behind the first turn's prompt are the same, not only the words."""
    rows = []
    for prefix in (False, True):
        if prefix:
            bake(model)
        made = stage(model)
        for _ in made.settle():
            pass
        io = driver.IO(Mode.CHAT, {"messages": [{"role": "user", "content": "hello"}]}, ["sink"])
        driver.drive(made.request(io), io)
        place = made._parts.pool.take(made._parts.shared)
        rows.append([array[:, :, : len(place.tokens)].copy() for array in place.memory] + [place.logits().copy()])
    for one, two in zip(*rows, strict=True):
        np.testing.assert_array_equal(one, two)


def test_baked__first_turn_runs_the_user_s_words_only(model: Any, driver: Any) -> None:
    """Nothing of the opening is run: neither while settling nor by the first request."""
    bake(model)
    made = stage(model)

    assert list(made.settle()) == []
    _, report = answer(made, driver, "hello")
    assert report["cached_tokens"] == len(made._parts.shared)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": {"weights": "x", "stage/cache": "", "stage/chunk_tokens": "128"}}, "weights: wanted x; found toy"),
        ({"tokens": (1, 2)}, "tokens: wanted 2 tokens; found"),
        ({"memory": {}}, r"past_key_values\.0\.key: wanted nothing; found f32\[1, 1, "),
    ],
)  # fmt: skip
def test_baked__stale_is_refused_by_name(
    model: Any, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The field is named on stderr and in the facts, and the opening is computed as without a baked prefix."""
    bake(model, **changes)
    made = stage(model)

    assert made.facts()["prefix"].startswith("baked prefix of toy: refused: ")
    assert made._parts.pool.prefix is None
    lines = capsys.readouterr().err
    assert made.facts()["prefix"] in lines
    assert re.search(f"dpfedge: stage llm: baked prefix of toy: refused: {message}", lines), lines
    assert list(made.settle()) != []
    assert made._parts.pool.prefix is not None


def test_baked__other_chunks_are_stale(model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows computed in other chunks differ in their last bits, so they are not used."""
    bake(model)
    made = stage(model, chunk_tokens=16)

    assert "stage/chunk_tokens" in made.facts()["prefix"]
    assert "stage/chunk_tokens: wanted 128; found 16; run `dpfedge seal`" in capsys.readouterr().err


def test_bake__without_an_opening(model: Any) -> None:
    """The template alone may begin every prompt; baking covers what there is."""
    baked = LlmStage(model, {}, Budget()).bake()

    assert baked is None or isinstance(baked.record("x"), BakedPrefix)
