# SPDX-License-Identifier: Apache-2.0
"""Copying a file into the store."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import StoreError
from dpfedge.store import copying
from dpfedge.store.copying import copy_in, require_space

DATA = os.urandom(300_000)


@pytest.fixture
def source(tmp_path: Path) -> Any:
    """An open file."""
    (tmp_path / "source").write_bytes(DATA)
    fd = os.open(tmp_path / "source", os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("code", [None, errno.EXDEV, errno.EOPNOTSUPP])
def test_copy_in__copies_every_byte(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """Also where the kernel cannot share blocks; the copy is read-only."""
    monkeypatch.setattr(copying, "_AT_ONCE", 70_000)
    if code is not None:

        def refuse(*_: Any) -> int:
            raise OSError(code, "no")

        monkeypatch.setattr(copying.os, "copy_file_range", refuse)
    copy_in(source, tmp_path / "copy", len(DATA))

    assert (tmp_path / "copy").read_bytes() == DATA
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize("failing", ["copy_file_range", "fchmod", "fsync"])
def test_copy_in__that_fails_leaves_nothing(
    tmp_path: Path, source: int, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """The message has what was needed and what is free."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(copying.os, failing, refuse)
    needed = len(DATA) + (1 << 20)
    with pytest.raises(StoreError, match=rf"the store's disk is full; found \d+ bytes free; allowed {needed} bytes;"):
        copy_in(source, tmp_path / "copy", len(DATA))

    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_copy_in__of_a_file_that_was_cut_ends(tmp_path: Path, source: int) -> None:
    """The check afterwards says where."""
    copy_in(source, tmp_path / "copy", len(DATA) + 5)

    assert (tmp_path / "copy").read_bytes() == DATA


def test_require_space__tells_both_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written."""
    monkeypatch.setattr(copying.os, "statvfs", lambda path: SimpleNamespace(f_bavail=10, f_frsize=4096))
    with pytest.raises(StoreError) as caught:
        require_space(tmp_path, 100_000_000)

    assert str(caught.value) == (
        f"{tmp_path}: the store's disk has too little room; found 40960 bytes free; allowed 101048576 bytes; "
        "free some space: `dpfedge gc` deletes what no slot refers to"
    )
