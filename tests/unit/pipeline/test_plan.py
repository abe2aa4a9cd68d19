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


def test_placed__each_stage_by_its_model() -> None:
    """The heaviest stage first, and a stage without a model nowhere; nothing without a package."""
    graph = {"g": SimpleNamespace(weights=("w",))}

    def place(target: str, degraded: str | None = None) -> Any:
        models = {"vad": SimpleNamespace(graphs=graph), "llm": SimpleNamespace(graphs=graph)}
        made = SimpleNamespace(id=target, models=models)
        device, backend = SimpleNamespace(id=f"{target}:0"), SimpleNamespace(name=target)
        return SimpleNamespace(target=made, backend=backend, device=device, degraded=degraded)

    nodes = [SimpleNamespace(name=name, model=model) for name, model in (("ears", "vad"), ("io", ""), ("brain", "llm"))]
    bound = SimpleNamespace(
        package=SimpleNamespace(find=lambda name: SimpleNamespace(size=1)),
        places={"llm": place("gpu"), "vad": place("cpu", "why")},
    )  # fmt: skip
    board: Any = SimpleNamespace(placement={})
    plan = Plan("toy", SimpleNamespace(stages=nodes), board, {}, bound)  # type: ignore[arg-type]

    assert plan.placed() == {
        "ears": {"target": "cpu", "backend": "cpu", "device": "cpu:0", "degraded": "why"},
        "brain": {"target": "gpu", "backend": "gpu", "device": "gpu:0", "degraded": None},
    }
    assert Plan("toy", SimpleNamespace(stages=nodes), board, {}).placed() == {}  # type: ignore[arg-type]
