# SPDX-License-Identifier: Apache-2.0
"""Baked prefixes on their way into a package; the function that computes them is a stand-in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dpfedge_cpu import CpuBackend
from made_gguf import llama_file

from dpfedge.backend.registry import Registry
from dpfedge.binding import Bound
from dpfedge.binding.bind import bind
from dpfedge.binding.here import look
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.package import open_package
from dpfedge.package.prefix import Baked, Stored

RECIPE = """\
name: tiny
version: "1"
models:
  llm: {family: llama, source: "folder:llm", licence: Apache-2.0, context: 16, mode: exact}
pipeline:
  stages:
    llm: {model: llm, system: Be brief.}
"""
SEEN: list[Mapping[str, Any]] = []


def bake(bound: Bound, pipeline: Mapping[str, Any]) -> Mapping[str, Baked]:
    """A prefix of four bytes; the model must be complete enough to load and name its key."""
    from dpfedge.backend.api import Budget

    model = bound.model("llm")
    model.load("llm", Budget()).close()
    SEEN.append(pipeline)
    return {"llm": Baked(model.key(), (1, 2), {"past": Stored(0, 4, "u8", (4,))}, (b"12", b"34"))}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recipe and the model it names."""
    (tmp_path / "llm").mkdir()
    llama_file(tmp_path / "llm")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    return tmp_path


def compiled(folder: Path, name: str, boards: tuple[str, ...] = ("host",)) -> Path:
    registry = Registry()
    registry.add(CpuBackend())
    compile_package(load_recipe(folder / "tiny.yaml"), folder / name, boards=boards, registry=registry, bake=bake)
    return folder / name


def test_bake_target__section_record_and_decision(folder: Path) -> None:
    """The prefix is a section of its kind, its record is beside the graphs, and its key fits on this machine."""
    package = open_package(compiled(folder, "a.dpfbin"))
    target = package.manifest.targets[0]
    prefix = target.models["llm"].prefix

    assert prefix is not None
    assert (prefix.tokens, bytes(package.section(prefix.section))) == ((1, 2), b"1234")
    assert package.find(prefix.section).kind == "prefix"
    assert any(choice == "llm: prefix=2 tokens, 4 bytes" for choice, _ in target.decisions)
    assert SEEN[-1]["stages"]["llm"]["system"] == "Be brief."
    here = look()
    assert bind(package, here.board, here.found).model("llm").prefix().source == "package"


def test_bake_target__another_board_is_left_to_its_seal(folder: Path) -> None:
    """A target of hardware that is not here gets no prefix, and the decision says why."""
    package = open_package(compiled(folder, "a.dpfbin", ("rk3588",)))
    target = package.manifest.targets[0]

    assert target.models["llm"].prefix is None
    [rule] = [rule for choice, rule in target.decisions if choice == "prefix=left to dpfedge seal"]
    assert rule.startswith("this machine cannot run the target: board: wanted ")


def test_bake_target__same_bytes(folder: Path) -> None:
    """Twice the same inputs, twice the same file."""
    first = compiled(folder, "a.dpfbin", ("host", "rk3588")).read_bytes()

    assert compiled(folder, "b.dpfbin", ("rk3588", "host")).read_bytes() == first
