# SPDX-License-Identifier: Apache-2.0
"""Reading small files of a store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.store.small import read_json


def test_read_json__what_is_there(tmp_path: Path) -> None:
    """Its values, through a link too; OSError when there is nothing."""
    (tmp_path / "a").write_text('{"b": [1]}')
    (tmp_path / "link").symlink_to("a")

    assert read_json(tmp_path / "a") == read_json(tmp_path / "link") == {"b": [1]}
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "none")


def test_read_json__what_no_store_wrote(tmp_path: Path) -> None:
    """A FIFO, a folder, a file of a terabyte, brackets without end: ValueError, at once and in little memory."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "deep").write_text("[" * 100_000)
    for name, text in (
        ("fifo", "not a regular file"), ("folder", "not a regular file"), ("large", "more than 1048576 bytes"),
        ("deep", "nested too deeply"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            read_json(tmp_path / name)
