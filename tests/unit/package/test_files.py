# SPDX-License-Identifier: Apache-2.0
"""Files that take their place when they are whole: errors of the system become PackageError and leave nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge.errors import PackageError, WriteError
from dpfedge.package.files import call, publish, temporary_beside, write_at


def started(path: Path) -> tuple[int, Path]:
    """A temporary file with words in it."""
    temporary = temporary_beside(path)
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    write_at(path, fd, memoryview(b"words"), 3)
    return fd, temporary


def test_publish__gives_the_name_and_closes(tmp_path: Path) -> None:
    """The old file is replaced; the temporary name is gone."""
    path = tmp_path / "p"
    path.write_bytes(b"old")
    fd, temporary = started(path)
    publish(fd, temporary, path)

    assert path.read_bytes() == b"\0\0\0words"
    assert os.listdir(tmp_path) == ["p"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_publish__that_fails_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Neither a temporary file nor a descriptor stays."""
    path = tmp_path / "p"
    path.write_bytes(b"old")
    fd, temporary = started(path)

    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(PackageError, match="p: cannot write the package: Input/output error"):
            publish(fd, temporary, path)

    assert (os.listdir(tmp_path), path.read_bytes()) == (["p"], b"old")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/null", path)])
def test_temporary__for_no_device_and_no_folder(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Root that writes to /dev/null must not take it away from everybody; a folder is named before the work."""
    make(tmp_path / "p")

    with pytest.raises(PackageError, match="p: cannot write the package: not a regular file"):
        temporary_beside(tmp_path / "p")


def test_write_at__a_call_that_writes_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on where the call stopped."""
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, view, offset: pwrite(fd, view[:2], offset))
    fd, temporary = started(tmp_path / "p")
    os.close(fd)

    assert temporary.read_bytes() == b"\0\0\0words"


def test_call__gives_the_result(tmp_path: Path) -> None:
    """Options too."""
    assert call(tmp_path, os.fspath, tmp_path) == str(tmp_path)
    assert temporary_beside(tmp_path / "p") != temporary_beside(tmp_path / "p")


def test_call__a_full_disk_says_what_is_free(tmp_path: Path) -> None:
    """It is no question of trust: exit code 1."""

    def full() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        WriteError, match=r"cannot write the package: No space left on device; found \d+ bytes free"
    ) as e:
        call(tmp_path / "p", full)
    assert e.value.exit_code == 1
