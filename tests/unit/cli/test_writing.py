# SPDX-License-Identifier: Apache-2.0
"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.cli.writing import writing
from dpfedge.errors import WriteError


def test_writing__names_what_cannot_be_written_and_where(tmp_path: Path) -> None:
    """And why; other errors pass through."""
    said = r"the figures cannot be written; found Is a directory"
    with pytest.raises(WriteError, match=said) as caught, writing(tmp_path, "the figures"):
        tmp_path.write_text("")
    assert caught.value.where == str(tmp_path)
    with pytest.raises(ValueError, match="mine"), writing(tmp_path, "the figures"):
        raise ValueError("mine")


def test_writing__lets_be_what_is_written(tmp_path: Path) -> None:
    """Nothing is added."""
    with writing(tmp_path / "x", "the figures"):
        (tmp_path / "x").write_text("1")
    assert (tmp_path / "x").read_text() == "1"
