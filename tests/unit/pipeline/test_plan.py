# SPDX-License-Identifier: Apache-2.0
"""What a start needs of a pipeline file."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_flow import CODE

from dpfedge.errors import ConfigError
from dpfedge.pipeline.plan import PipelineFile, Plan

TEXT = """name: sums
pipeline:
  stages:
    double: {kind: "code:Double"}
    add: {kind: "code:Add"}
  links:
    - {from: double.doubled, to: add.numbers}
"""


def _file(folder: Path, text: str = TEXT) -> PipelineFile:
    (folder / "code.py").write_text(CODE)
    (folder / "sums.yaml").write_text(text)
    return PipelineFile.load(folder / "sums.yaml")


def test_file__on_this_machine(tmp_path: Path) -> None:
    """Graph, section and the folder that the stages' processes import from; no package, no descriptors."""
    board: Any = SimpleNamespace(placement={})
    plan = Plan.of_file(_file(tmp_path), board, None)

    assert (plan.name, plan.graph.names) == ("sums", ("double", "add"))
    assert plan.setup() == {"folder": str(tmp_path)}
    assert (plan.files(), plan.heaviest_first()) == ([], [])


def test_file__its_package_lies_beside_it(tmp_path: Path) -> None:
    """Relative to the file, wherever the caller stands."""
    assert _file(tmp_path, TEXT.replace("name: sums", "name: sums\npackage: voice.dpfbin")).package == (
        tmp_path / "voice.dpfbin"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: sums", "nme: sums", r"sums\.yaml:1: unknown key 'nme'.*did you mean name"),
        ("code:Add", "code:Ad", "sums.yaml:5: the module has no such class"),
        ("add.numbers", "add.number", r"sums\.yaml:7: pipeline\.links\[0\]: no such input; found add\.number"),
        ("add.numbers", "add.word", r"the ports do not fit: dtype; found double\.doubled gives f32"),
    ],
)
def test_file__that_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Found before a process is started."""
    board: Any = SimpleNamespace(placement={})
    with pytest.raises(ConfigError, match=words):
        Plan.of_file(_file(tmp_path, TEXT.replace(old, new)), board, None)
