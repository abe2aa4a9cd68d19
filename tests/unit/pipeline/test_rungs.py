# SPDX-License-Identifier: Apache-2.0
"""A ladder against the stages it is to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.pipeline.graph import Graph, StageNode
from dpfedge.pipeline.ladder import Ladder
from dpfedge.pipeline.rungs import check_rungs, over

CODE = """
from dpfedge.stage.each import Each
from dpfedge.stage.ports import Port, Ports
class Fixed(Each):
    ports = Ports({}, {"numbers": Port("f32")})
class Open(Fixed):
    def adjust(self, settings): ...
class Named(Open):
    LIVE = ("rate",)
class Sized(Each):
    @staticmethod
    def ports(config, model):
        return Ports({}, {"numbers": Port("f32", rate=model["rate"])})
"""
MODELS: dict[str, dict[str, Any]] = {"fast": {"rate": 16000}, "fine": {"rate": 22050}, "same": {"rate": 22050}}
VOICE = {"stages": {"voice": {"model": "fine"}, "llm": {"model": "fine", "sampling": {"top_p": 0.5}}}}


def nodes(pipeline: Any, folder: Path | None = None) -> dict[str, StageNode]:
    """The stages of a pipeline."""
    return {node.name: node for node in Graph.of(pipeline, "toy", MODELS, folder).stages}


def fits(made: dict[str, StageNode], *settings: dict[str, Any]) -> None:
    """Check a ladder whose steps set these."""
    steps = [{"when": {"power_mode": ["7W"]}, "set": row} for row in settings]
    check_rungs(Ladder.of(steps, "toy"), made, MODELS)


def test_over__puts_maps_together_with_the_stages_own() -> None:
    """Only the keys that are set, and no model."""
    config = {"sampling": {"top_p": 0.5, "max_tokens": 9}, "places": 2}

    assert over(config, {"sampling": {"max_tokens": 3}, "model": "x", "first_words": 1}) == {
        "sampling": {"top_p": 0.5, "max_tokens": 3}, "first_words": 1,
    }  # fmt: skip
    assert over(config, {}) == {}


def test_rungs__that_fit() -> None:
    """Live settings, and a model with the same ports."""
    fits(nodes(VOICE), {"llm": {"sampling": {"max_tokens": 3}}}, {"llm": {"model": "same"}, "voice": {"model": "same"}})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lm": {"a": 1}}, r"toy: ladder\[0\]: the step sets a stage that there is not; found lm"),
        (
            {"llm": {"places": 1}},
            r"step 1: llm: this setting cannot change .*; found places; allowed sampling, .*, model",
        ),
        ({"llm": {"samplin": {}}}, r"found samplin; .*did you mean sampling\?"),
        ({"llm": {"sampling": {"max_tokens": 0}}}, "sampling.max_tokens: out of range"),
        ({"llm": {"sampling": {"max_token": 5}}}, "did you mean max_tokens"),
        ({"llm": {"model": "fats"}}, r"no such model; found fats; allowed fast, fine, same; did you mean fast\?"),
        ({"voice": {"model": "fast"}}, "voice: model fast has another rate; found 16000; allowed 22050"),
        ({"voice": {"speed": 2.0}}, "cannot change while the stage runs; found speed; allowed model"),
    ],
)
def test_rungs__that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    """The step, the stage and what it may set are named."""
    with pytest.raises(ConfigError, match=words):
        fits(nodes(VOICE), settings)


def test_rungs__are_checked_one_by_one() -> None:
    """A mistake of the first step does not hide behind the second."""
    with pytest.raises(ConfigError, match=r"step 1: llm: .*did you mean max_tokens"):
        fits(nodes(VOICE), {"llm": {"sampling": {"max_token": 5}}}, {"llm": {"sampling": {"max_tokens": 5}}})


def test_rungs__of_classes_beside_the_pipeline_file(tmp_path: Path) -> None:
    """A class says by `LIVE` what may change; without, only one that has `adjust` is asked, when it runs."""
    (tmp_path / "stages.py").write_text(CODE)
    kinds = {"fixed": "Fixed", "open": "Open", "named": "Named"}
    stages = {name: {"kind": f"stages:{kind}", "x": 1} for name, kind in kinds.items()}
    made = nodes({"stages": stages, "links": []}, tmp_path)

    fits(made, {"open": {"x": 2}, "named": {"rate": 2}})
    with pytest.raises(ConfigError, match=r"named: this setting cannot change .*found x; allowed rate, model"):
        fits(made, {"named": {"x": 2}})
    with pytest.raises(ConfigError, match=r"fixed: this setting cannot change .*found x; allowed model"):
        fits(made, {"fixed": {"x": 2}})
    with pytest.raises(ConfigError, match="open: this stage has no model"):
        fits(made, {"open": {"model": "fine"}})
    sized = nodes({"stages": {"sized": {"kind": "stages:Sized", "model": "fine"}}, "links": []}, tmp_path)
    with pytest.raises(ConfigError, match="sized: with model fast the stage has other ports"):
        fits(sized, {"sized": {"model": "fast"}})
