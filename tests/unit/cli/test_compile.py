# SPDX-License-Identifier: Apache-2.0
"""`dpfedge compile`: mistakes are found before anything is fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.cli import main

RECIPE = """\
name: voice
version: "1"
models:
  vad: {family: silero-vad, source: "folder:none", licence: MIT}
pipeline:
  stages:
    decoder: {model: vad}
"""


def compiled(folder: Path, text: str) -> int:
    """The exit code of compiling `text`."""
    path = folder / "voice.yaml"
    path.write_text(text)
    return main(["compile", str(path), "-o", str(folder / "voice.dpfbin")])


@pytest.mark.parametrize(("old", "new", "found"), [
    ("decoder: {model: vad}", "decoder: {model: vad, threshhold: 1}", "voice.yaml:7"),
    ("decoder: ", "decoders:\n      ", "voice.yaml:7: unknown stage; found decoders"),
    ("decoder:", "decoders:", "did you mean decoder?"),
    ("version:", "versoin:", "versoin"),
])  # fmt: skip
def test_compile__bad_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, found: str
) -> None:
    """Unknown keys and stages are usage errors that name the place or the nearest word; no package appears."""
    assert compiled(tmp_path, RECIPE.replace(old, new)) == 2
    assert found in capsys.readouterr().err
    assert not (tmp_path / "voice.dpfbin").exists()


def test_compile__missing_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is not there is exit code 1 with the recipe's line."""
    assert compiled(tmp_path, RECIPE) == 1
    assert "voice.yaml:4: no such folder" in capsys.readouterr().err
