# SPDX-License-Identifier: Apache-2.0
"""Board files, with and without an index beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import ConfigError
from dpfedge.hardware import boardfile
from dpfedge.hardware.boardfile import INDEX, board_data, make_index, match_terms

BOARD = (
    "title: my board\nvendor: me\nmatch: {arch: [x86_64]}\n"
    "devices: [{id: cpu, kind: cpu, backends: [cpu]}]\nplacement: {llm: {threads: 1}}\n"
)


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A folder with one board."""
    path = tmp_path / "mine.yaml"
    path.write_text(BOARD)
    return path


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on no YAML is read."""

    def fail(path: Path) -> Any:
        raise AssertionError(f"{path} was read as YAML")

    monkeypatch.setattr(boardfile, "_checked", fail)


def test_data__is_the_same_with_and_without_an_index(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an indexed file neither the YAML reader nor the schema is needed."""
    plain, terms = board_data(board), match_terms(board)
    other = tmp_path / "indexed"
    other.mkdir()
    (other / "mine.yaml").write_text(BOARD)
    (other / INDEX).write_text(make_index(other))
    forbid(monkeypatch)

    assert board_data(other / "mine.yaml") == plain
    assert match_terms(other / "mine.yaml") == terms == plain["match"]


def test_index__does_not_count_for_a_changed_file(board: Path) -> None:
    """A file that was edited after it was indexed is read as it is now; so is one that is not in the index."""
    (board.parent / INDEX).write_text(make_index(board.parent))
    board.write_text(BOARD.replace("my board", "his board"))
    (board.parent / "new.yaml").write_text(BOARD)

    assert board_data(board)["title"] == "his board"
    assert board_data(board.parent / "new.yaml")["title"] == "my board"
    board.write_text(BOARD.replace("vendor", "vendro"))
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: unknown key"):
        board_data(board)


def test_index__that_is_damaged(board: Path) -> None:
    """It is named; removing it is always right."""
    (board.parent / INDEX).write_text("{")

    with pytest.raises(ConfigError, match=r"_index\.json: the index cannot be read; remove it"):
        board_data(board)


def test_make_index__checks_what_it_takes(board: Path) -> None:
    """A board that breaks the schema gets into no index."""
    assert json.loads(make_index(board.parent))["mine.yaml"]["board"]["title"] == "my board"
    board.write_text(BOARD.replace("threads: 1", "threads: 0"))

    with pytest.raises(ConfigError, match="out of range"):
        make_index(board.parent)
