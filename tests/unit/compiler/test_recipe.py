# SPDX-License-Identifier: Apache-2.0
"""Recipes: what is read, and what is refused with line and nearest word."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import ConfigError

GOOD = """\
name: voice
version: "1.0"
models:
  llm:
    family: llama
    source: folder:models
    licence: MIT
    context: 16
    files: {model: tiny.gguf}
pipeline:
  stages:
    llm: {model: llm, system: Be brief.}
"""


def recipe(folder: Path, text: str = GOOD) -> Path:
    """Write a recipe."""
    path = folder / "voice.yaml"
    path.write_text(text)
    return path


def test_load_recipe__reads(tmp_path: Path) -> None:
    """Models and pipeline come back checked."""
    found = load_recipe(recipe(tmp_path))

    assert (found.name, found.version) == ("voice", "1.0")
    assert (found.models[0].kind, found.models[0].place, found.models[0].context) == ("folder", "models", 16)
    assert found.pipeline == {"stages": {"llm": {"model": "llm", "system": "Be brief."}}}


@pytest.mark.parametrize(("old", "new", "text"), [
    ("family: llama", "family: lama", r"voice\.yaml:5: .*did you mean llama\?"),
    ("source: folder:models", "source: models", r"voice\.yaml:6: .*catalogue:silero-vad"),
    ("source: folder:models", 'source: "folder:a\\0b"', r"voice\.yaml:6: .*catalogue:silero-vad"),
    ("    context: 16", "    contxt: 16", r"voice\.yaml:8: .*contxt.*context"),
    ("    licence: MIT\n", "", r"needs its licence"),
    ("{model: tiny.gguf}", "{wheels: tiny.gguf}", r"llama has no file wheels; allowed model, config, token"),
    ("llm: {model: llm,", "llm: {model: lmm,", r"names an unknown model; found lmm; allowed llm; did you mean llm\?"),
    ("name: voice\n", "", r"name"),
])  # fmt: skip
def test_load_recipe__refuses(tmp_path: Path, old: str, new: str, text: str) -> None:
    """Each mistake names its place."""
    assert old in GOOD
    with pytest.raises(ConfigError, match=text):
        load_recipe(recipe(tmp_path, GOOD.replace(old, new)))


def test_load_recipe__option_of_another_family(tmp_path: Path) -> None:
    """An option the family does not have is refused, not ignored."""
    text = GOOD.replace("family: llama", "family: silero-vad").replace("    files: {model: tiny.gguf}\n", "")

    with pytest.raises(ConfigError, match="family silero-vad has no option context; allowed none"):
        load_recipe(recipe(tmp_path, text))


def test_load_recipe__formats_and_buckets(tmp_path: Path) -> None:
    """The weights' format, its limit and the buckets are read; what is none of them is refused by name."""
    found = load_recipe(
        recipe(tmp_path, GOOD.replace("    context: 16", "    weights: int4\n    max_loss: 0.05"))
    ).models[0]
    assert (found.weights, found.max_loss, found.buckets) == ("int4", 0.05, {})

    graphs = """\
name: x
version: "1"
models:
  m: {family: onnx, source: "folder:m", licence: MIT, buckets: {frames: [64, 128]}}
"""
    found = load_recipe(recipe(tmp_path, graphs)).models[0]
    assert (found.weights, found.max_loss, found.buckets) == ("keep", None, {"frames": [64, 128]})
    wrong = [("[64, 128]", "[]", "frames"), ("[64, 128]", "[0]", "frames"), ("buckets", "bukkets", "buckets"),
             ("MIT,", "MIT, weights: int3,", "int4"), ("MIT,", "MIT, max_loss: 0.1,", "max_loss without")]  # fmt: skip
    for old, new, text in wrong:
        with pytest.raises(ConfigError, match=text):
            load_recipe(recipe(tmp_path, graphs.replace(old, new)))


def test_demo_recipe__is_valid() -> None:
    """The demo's recipe is one."""
    found = load_recipe(Path(__file__).parents[3] / "examples" / "voice" / "voice.yaml")

    assert {model.family for model in found.models} == {"silero-vad", "moonshine", "llama", "piper"}
