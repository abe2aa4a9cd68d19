# SPDX-License-Identifier: Apache-2.0
"""The written form of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.config import parse_yaml
from dpfedge.errors import ConfigError
from dpfedge.pipeline.section import check_pipeline

TEXT = """pipeline:
  stages:
    decoder: {model: vad}
    mine: {kind: "code:Mine", loud: true}
  links:
    - {from: decoder.speech, to: mine.speech, slots: 4}
  budgets: {request: 2s, memory: 64MiB, stages: {mine: 10ms}}
"""
CODE = """
from dpfedge.stage import Each, Ports
class Mine(Each):
    SCHEMA = {"type": "object", "additionalProperties": False, "properties": {"loud": {"type": "boolean"}}}
"""


def _check(folder: Path, text: str) -> None:
    (folder / "code.py").write_text(CODE)
    check_pipeline(parse_yaml(text, "p.yaml")["pipeline"], "p.yaml", folder)


def test_section__that_is_right(tmp_path: Path) -> None:
    """Stages of dpfedge and of one's own, links, budgets."""
    _check(tmp_path, TEXT)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("model: vad", "modl: vad", r"p\.yaml:3: unknown key 'modl'.*did you mean model"),
        ("model: vad", "model: vad, treshold: 1", r"p\.yaml:3: unknown key 'treshold'"),
        ("loud: true", "loud: 3", r"p\.yaml:4: loud: wrong type"),
        ("loud: true", "lod: true", r"p\.yaml:4: unknown key 'lod'.*did you mean loud"),
        (
            "from: decoder.speech",
            "from: decoder",
            r"p\.yaml:6: links\[0\]\.from: wrong form.*for example camera\.frames",
        ),
        ("slots: 4", "slots: 1", r"p\.yaml:6: links\[0\]\.slots: out of range"),
        ("slots: 4", "polcy: newest", r"p\.yaml:6: unknown key 'polcy'.*did you mean policy"),
        ("request: 2s", "request: 2", r"p\.yaml:7: budgets\.request.*write it like"),
        ("mine: {kind", "Mine: {kind", r"p\.yaml:4: stages\.Mine: wrong form"),
        ("mine: {kind", "sink: {kind", r"p\.yaml:4: a stage cannot be called that; found sink"),
        ('"code:Mine"', "mine", r"p\.yaml:4: unknown stage kind; found mine"),
    ],
)
def test_section__that_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    """File, line and the nearest known word."""
    assert old in TEXT
    with pytest.raises(ConfigError, match=words):
        _check(tmp_path, TEXT.replace(old, new))


LADDER = TEXT.replace(
    "  links:",
    """  ladder:
    - when: {temperature: 80C}
      until: {temperature: 70C}
      set: {mine: {loud: false}}
  links:""",
)
LIVE = CODE + "    LIVE = ('loud',)\n    def adjust(self, settings): ...\n"


def test_ladder__is_checked_against_the_stages(tmp_path: Path) -> None:
    """With its lines, before anything runs."""
    (tmp_path / "code.py").write_text(LIVE)
    section = parse_yaml(LADDER.replace("code:", "live:"), "p.yaml")["pipeline"]
    (tmp_path / "live.py").write_text(LIVE)

    check_pipeline(section, "p.yaml", tmp_path)
    with pytest.raises(ConfigError, match=r"p\.yaml:6: step 1: mine: this setting cannot change .*found loud"):
        _check(tmp_path, LADDER)
    with pytest.raises(ConfigError, match=r"p\.yaml:6: the step sets a stage that there is not; found min"):
        _check(tmp_path, LADDER.replace("set: {mine:", "set: {min:"))
    with pytest.raises(ConfigError, match=r"p\.yaml:8: unknown key .*did you mean set\?"):
        _check(tmp_path, LADDER.replace("set:", "sett:"))
