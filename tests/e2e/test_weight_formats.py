# SPDX-License-Identifier: Apache-2.0
"""The demo's llm in other weight formats: what they cost is measured, kept and bounded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

from dpfedge.backend.registry import Registry
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import ModelError
from dpfedge.models import cached
from dpfedge.package import Package, open_package

MODEL = "smollm2-135m-instruct-q4_1"
RECIPE = 'name: x\nversion: "1"\nmodels: {llm: {family: decoder, source: "catalogue:NAME", context: 320, OPTIONS}}\n'

pytestmark = pytest.mark.skipif(not cached(MODEL), reason="`dpfedge models pull` has not filled the cache")


@pytest.fixture(autouse=True)
def fewer_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the text is enough to see whether a format is measured."""
    monkeypatch.setattr("dpfedge.compiler.quality._TOKENS_MAX", 96)


def compiled(folder: Path, options: str) -> Package:
    """The llm alone, for this machine."""
    recipe, out = folder / "x.yaml", folder / "x.dpfbin"
    recipe.write_text(RECIPE.replace("NAME", MODEL).replace("OPTIONS", options))
    compile_package(load_recipe(recipe), out, boards=["host"], registry=Registry.load())
    return open_package(out, check="fast")


def figures(package: Package, form: str) -> dict[str, Any]:
    """What the package says of one format."""
    return dict(package.manifest.models["llm"].config["formats"][form])


def test_int8__costs_next_to_nothing(tmp_path: Path) -> None:
    """Perplexity of the built-in text grows by less than 3 %, and a person who asks is told."""
    package = compiled(tmp_path, "weights: int8, max_loss: 0.03")
    found = figures(package, "int8")

    assert 20 < found["perplexity_before"] < 60
    assert found["tokens"] == 96
    assert abs(found["perplexity_after"] / found["perplexity_before"] - 1) < 0.03
    assert any(choice.startswith("llm: quality of int8: loss") for choice, _ in package.manifest.targets[0].decisions)


def test_int4__more_than_the_recipe_allows(tmp_path: Path) -> None:
    """Rounding 4-bit weights to 4 bits again costs more than 3 %: the compile stops with the figures and no file."""
    with pytest.raises(
        ModelError, match=r"weights: int4 costs more than max_loss; found loss 0\.\d+ .*perplexity_after"
    ):
        compiled(tmp_path, "weights: int4, max_loss: 0.03")

    assert not list(tmp_path.glob("*.dpfbin"))
