# SPDX-License-Identifier: Apache-2.0
"""Each file in boards/ is a case: it follows the schema, stays recognisable, and its plan is what the snapshot says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dpfedge.config import check, load_yaml, plain
from dpfedge.hardware.architecture import FEATURES
from dpfedge.hardware.board import find_board, read_board
from dpfedge.hardware.boardfile import INDEX, make_index
from dpfedge.hardware.probe import probe

Record = Callable[[str], Path]

FOLDER = Path(__file__).parents[3] / "boards"
SNAPSHOT = Path(__file__).parent / "snapshot.json"
FILES = sorted(FOLDER.glob("[!_]*.yaml"))
SCHEMA: dict[str, Any] = yaml.safe_load((FOLDER / "_schema.yaml").read_text())
PORTABLE = {name for features in FEATURES.values() for name in features} | {"unified_memory"}


def plan(path: Path) -> dict[str, Any]:
    """What the file means once read, without the folder it lies in."""
    data = asdict(read_board(path))
    del data["path"]
    return json.loads(json.dumps(data, default=sorted))  # type: ignore[no-any-return]


def test_schema__is_a_json_schema() -> None:
    """Editors and other tools can use the schema as it is."""
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_board__follows_the_schema(path: Path) -> None:
    """dpfedge's own check and the jsonschema library agree on every file."""
    data = load_yaml(path)

    check(data, plain(load_yaml(FOLDER / "_schema.yaml")), path)
    assert list(Draft202012Validator(SCHEMA).iter_errors(plain(data))) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_board__plan_is_the_snapshot(path: Path) -> None:
    """A change of a board's meaning shows in `snapshot.json`; `python tests/unit/boards/snapshot.py` rewrites it."""
    assert plan(path) == json.loads(SNAPSHOT.read_text())[path.stem]


def test_snapshot__holds_no_other_boards() -> None:
    """A removed board leaves the snapshot too."""
    assert set(json.loads(SNAPSHOT.read_text())) == {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_board__words_are_known(path: Path) -> None:
    """Features are those a whitelist can ask for, and every stage has a place."""
    board = read_board(path)

    assert {feature for device in board.devices for feature in device.features} <= PORTABLE
    assert set(board.placement) == {"decoder", "encoder", "llm", "voice"}
    assert any(device.backends == ("cpu",) for device in board.devices)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_board__facts_have_sources(path: Path) -> None:
    """Every file but host says in comments where its facts come from."""
    comments = re.findall(r"#\s*(.+)", path.read_text())[1:]

    assert path.stem in ("host", "host-opencl") or any(
        re.search(r"linux:|NVIDIA/|jetson|pciids|rocm\.docs|meta-tegra", c) for c in comments
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_board__recognises_its_own_machine(path: Path, record: Record) -> None:
    """A recorded machine of the board's name is the board, by name and by auto."""
    asked = "asked" in read_board(path).match
    machine = probe(record("host" if asked else path.stem))

    assert find_board(path.stem, machine).id == path.stem
    assert find_board("auto", machine).id == ("host" if asked else path.stem)


def test_index__is_that_of_the_files() -> None:
    """`boards/_index.json` spares binding the YAML reader; `python tests/unit/boards/snapshot.py` rewrites it."""
    assert (FOLDER / INDEX).read_text() == make_index(FOLDER)


def test_readme__lists_every_board_and_key() -> None:
    """boards/README.md names each board and each top-level key of the schema."""
    text = (FOLDER / "README.md").read_text()

    missing = [name for name in (*[path.stem for path in FILES], *SCHEMA["properties"]) if f"`{name}`" not in text]
    assert missing == []
