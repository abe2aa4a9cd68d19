# SPDX-License-Identifier: Apache-2.0
"""The demo's language model with its opening baked into the package: the same numbers, and nothing of it run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.backend.registry import Registry
from dpfedge.binding import Bound, bind_here
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.models import cached
from dpfedge.package import open_package
from dpfedge.seal.bake import bake_prefixes, openings
from dpfedge.stage.llm import LlmStage
from dpfedge.stage.llm.engine import prefill

MODEL = "smollm2-135m-instruct-q4_1"
RECIPE = f"""\
name: talk
version: "1"
models:
  llm: {{family: llama, source: "catalogue:{MODEL}", mode: fast, context: 512}}
pipeline:
  stages:
    llm:
      model: llm
      system: You are the voice assistant of a car. Answer in one short sentence.
      examples:
        - {{user: What is the capital of Spain?, assistant: The capital of Spain is Madrid.}}
        - {{user: Why do we need sleep?, assistant: Sleep lets your body rest.}}
"""
QUESTIONS = ("What is the capital of France?", "Why is the sky blue?")

pytestmark = pytest.mark.skipif(not cached(MODEL), reason="`dpfedge models pull` has not filled the cache")


def compiled(folder: Path, name: str) -> Path:
    (folder / "talk.yaml").write_text(RECIPE)
    registry, out = Registry.load(), folder / name
    compile_package(load_recipe(folder / "talk.yaml"), out, boards=["host"], registry=registry, bake=bake_prefixes)
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages of this file are."""
    return tmp_path_factory.mktemp("prefix")


@pytest.fixture(scope="module")
def bound(folder: Path) -> Bound:
    """The language model alone, with its opening baked."""
    return bind_here(open_package(compiled(folder, "one.dpfbin")))


def stage(bound: Bound, threads: int = 1) -> LlmStage:
    """A warm stage."""
    settings: Mapping[str, Any] = openings(bound.package.manifest.pipeline)["llm"]
    made = LlmStage(bound.model("llm"), settings, Budget(threads=threads))
    made.warm()
    return made


def memory(made: LlmStage) -> list[Any]:
    prefix = made._parts.pool.prefix
    assert prefix is not None
    return [np.asarray(array).view(np.uint32) for array in prefix.memory]


def unbaked(bound: Bound, threads: int = 1) -> LlmStage:
    """A stage that computed the opening itself."""
    made = stage(bound, threads)
    made._parts.pool.prefix = None
    assert list(made.settle()) != []
    return made


@pytest.mark.parametrize("threads", [1, 2])
def test_prefix__bytes_of_the_computed_one(bound: Bound, threads: int) -> None:
    """Key/value memory is equal bit by bit, whatever the number of threads that compute it."""
    baked = stage(bound, threads)

    assert baked.facts()["prefix"] == "package"
    assert list(baked.settle()) == []
    for mine, theirs in zip(memory(baked), memory(unbaked(bound, threads)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_prefix__logits_and_tokens_equal(bound: Bound) -> None:
    """Every token of several answers, and the logits it was chosen from, are those of the unbaked path."""
    found = []
    for made in (stage(bound), unbaked(bound)):
        rows = []
        for question in QUESTIONS:
            parts = made._parts
            messages = [*parts.opening, {"role": "user", "content": question}]
            tokens = parts.prompts.tokens(messages)
            place = parts.pool.take(tokens)
            kept = len(place.tokens)
            assert kept >= len(parts.shared)
            for _ in prefill(place, tokens, parts.settings.chunk_tokens, parts.prompts.newest(messages, tokens)):
                pass
            for _ in range(24):
                logits = place.logits().copy()
                token = int(logits.argmax())
                rows.append((token, logits.view(np.uint32)))
                place.run((token,))
            place.keep(0)
            parts.pool.give(place)
        found.append(rows)
    for (token, logits), (wanted, reference) in zip(*found, strict=True):
        assert token == wanted
        np.testing.assert_array_equal(logits, reference)


def test_prefix__compiled_twice_is_the_same_file(bound: Bound, folder: Path) -> None:
    """Baking gives the same bytes each time."""
    assert compiled(folder, "two.dpfbin").read_bytes() == bound.package.path.read_bytes()
