# SPDX-License-Identifier: Apache-2.0
"""The bar of `dpfedge compile`: it only grows, ends full, and is silent where nobody looks."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from dpfedge.cli.compile_progress import Work, compile_progress, model_bytes
from dpfedge.compiler.recipe import Recipe, load_recipe

STEPS = [
    "vad: import", "vad: lower for a", "vad: lower for b", "vad: golden values", "llm: import", "llm: fetch 1 of 9 MiB",
    "llm: lower for a", "llm: lower for b", "llm: golden values", "bake prefixes of a", "bake prefixes of b", "write",
]  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Two models, one of them from the catalogue."""
    (tmp_path / "llm").mkdir()
    (tmp_path / "llm" / "x.gguf").write_bytes(bytes(3 << 20))
    text = 'name: a\nversion: "1"\nmodels:\n  vad: {family: silero-vad, source: "catalogue:silero-vad"}\n'
    (tmp_path / "a.yaml").write_text(text + '  llm: {family: llama, source: "folder:llm", licence: MIT}\n')
    return load_recipe(tmp_path / "a.yaml")


def test_work__grows_to_its_total() -> None:
    """Each step begins where the one before it ended; the last step fills the rest; a larger model weighs more."""
    work = Work({"vad": 1 << 20, "llm": 100 << 20}, 2)
    behind = [work.start(text) for text in STEPS]

    assert behind == sorted(behind)
    assert behind[0] == 0
    assert behind[5] == behind[4]  # fetching is no step
    assert behind[6] - behind[4] == 100 * (behind[1] - behind[0])
    assert abs(work.start("write") - work.total) < 1


def test_work__changed_weights() -> None:
    """A model whose weights change form has two more steps, and its last step still ends full."""
    work = Work({"llm": 10 << 20}, 1, ["llm"])
    steps = ["llm: import", "llm: convert to int8", "llm: quality of int8", "llm: lower for a", "llm: golden values",
             "bake prefixes of a", "write"]  # fmt: skip
    behind = [work.start(text) for text in steps]

    assert len(set(behind)) == len(steps)
    assert abs(work.start("write") - work.total) < 1


def test_work__more_steps_than_planned_stay_inside() -> None:
    """A step nobody expected never makes more than everything."""
    work = Work({"vad": 1 << 20}, 1)
    assert max(work.start(text) for text in STEPS * 3) <= work.total


def test_model_bytes__before_anything_is_fetched(recipe: Recipe) -> None:
    """The catalogue knows sizes, and a folder's files have theirs."""
    sizes = model_bytes(recipe)

    assert sizes["llm"] == 3 << 20
    assert sizes["vad"] > 1 << 20


def test_compile_progress__on_a_terminal_only(recipe: Recipe) -> None:
    """A terminal gets the bar with what is done now; files and `--json` get nothing."""
    for quiet, terminal, shown in ((False, True, True), (True, True, False), (False, False, False)):
        out = io.StringIO()
        console = Console(file=out, force_terminal=terminal, width=100)
        with compile_progress(recipe, 2, quiet=quiet, console=console) as progress:
            for text in STEPS:
                progress(text)
        assert ("write" in out.getvalue()) is shown
        assert bool(out.getvalue()) is shown
