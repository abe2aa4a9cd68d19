# SPDX-License-Identifier: Apache-2.0
"""Replacing a file: the new bytes or the old ones, and what a refusal says."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import StoreError
from dpfedge.store import durable
from dpfedge.store.durable import changing, make_folder, place, replace, unlink


@pytest.mark.parametrize("failing", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("before", [None, b"old"])
def test_replace__that_fails_leaves_the_old_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, before: bytes | None
) -> None:
    """And no other file; also when only the folder's fsync is refused, after the rename."""
    path = tmp_path / "slots"
    if before is not None:
        path.write_bytes(before)

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable.os, failing, refuse)
    with pytest.raises(OSError, match="Input/output"):
        replace(path, b"new")
    monkeypatch.undo()

    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == ({"slots": before} if before else {})


@pytest.mark.parametrize("before", [None, b"old"])
def test_replace__undoes_a_rename_that_is_not_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    """The folder's fsync fails: what the caller hears and what the file holds agree."""
    path = tmp_path / "slots"
    if before is not None:
        path.write_bytes(before)

    def refuse(folder: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable, "fsync_folder", refuse)
    with pytest.raises(OSError, match="Input/output"):
        replace(path, b"new")

    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == ({"slots": before} if before else {})


def test_replace__that_cannot_be_undone_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk goes after the rename: the new bytes stand, and the caller hears it."""
    path = tmp_path / "slots"
    path.write_bytes(b"old")

    def refuse(*_: Any) -> None:
        monkeypatch.setattr(durable, "_write", refuse)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable, "fsync_folder", refuse)
    with pytest.raises(StoreError) as caught:
        replace(path, b"new")

    assert str(caught.value) == (
        f"{path}: the change was made, but the disk does not say that it is durable, nor lets it be undone; "
        "found Input/output error; look at the kernel's log for the disk"
    )
    assert path.read_bytes() == b"new"


def test_replace__place__unlink(tmp_path: Path) -> None:
    """What they are for."""
    replace(tmp_path / "a", b"1")
    replace(tmp_path / "a", b"22")
    (tmp_path / "sub").mkdir()
    place(tmp_path / "a", tmp_path / "sub" / "b")
    assert (tmp_path / "sub" / "b").read_bytes() == b"22"
    unlink(tmp_path / "sub" / "b")
    unlink(tmp_path / "sub" / "b")

    assert list((tmp_path / "sub").iterdir()) == []


def test_make_folder__with_those_above(tmp_path: Path) -> None:
    """Each is made durable in the one above; a file in the way is the system's error."""
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    (tmp_path / "file").write_text("")

    assert (tmp_path / "a" / "b").is_dir()
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        make_folder(tmp_path / "file" / "c")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (errno.EROFS, "{0}: the store is read-only; mount it writable, or choose another store with DPFEDGE_STORE"),
        (
            errno.EACCES,
            "{0}: the store may not be changed; found user {1}; run this as the store's owner, or choose another store "
            "with DPFEDGE_STORE",
        ),
        (
            errno.EEXIST,
            "{0}: no store can be made there; found File exists; choose another folder with DPFEDGE_STORE or --store",
        ),
        (
            errno.EIO,
            "{0}: cannot change the store: Input/output error; look at the kernel's log for the disk",
        ),
    ],
)
def test_changing__says_what_to_do(tmp_path: Path, code: int, text: str) -> None:
    """For each kind of refusal, word for word."""
    with pytest.raises(StoreError) as caught, changing(tmp_path / "x"):
        raise OSError(code, os.strerror(code))

    assert str(caught.value) == text.format(tmp_path / "x", os.geteuid())


def test_changing__full_disk_tells_both_figures(tmp_path: Path) -> None:
    """What is free, what was needed."""
    text = r"x: the store's disk is full; found \d+ bytes free; allowed 77 bytes;"
    with pytest.raises(StoreError, match=text), changing(tmp_path / "x", 77):
        raise OSError(errno.ENOSPC, "No space left on device")
