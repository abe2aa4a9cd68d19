# SPDX-License-Identifier: Apache-2.0
"""What `--sysroot` may name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.errors import UsageError
from dpfedge.hardware.recording import record, write_tar
from dpfedge.hardware.sysroot import machine_root


def test_root__folder_is_taken_as_it_is(tmp_path: Path) -> None:
    """Nothing is copied; `/` is this machine."""
    with machine_root(tmp_path) as root:
        assert root == tmp_path
    with machine_root() as root:
        assert root == Path("/")


def test_root__tar_file_is_a_folder_while_it_is_used(tmp_path: Path) -> None:
    """Behind the use nothing is left."""
    write_tar(record(), tmp_path / "a car.tar")

    with machine_root(tmp_path / "a car.tar") as root:
        assert (root / "proc/meminfo").read_text().startswith("MemTotal")
        kept = root
    assert not kept.exists()


def test_root__tar_file_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Said with the way out; a car's disks are read-only."""
    write_tar({}, tmp_path / "car.tar")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))

    text = "cannot be unpacked: No such file or directory; name a folder you can write"
    with pytest.raises(UsageError, match=text), machine_root(tmp_path / "car.tar"):
        pass


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("none", "there is no such folder or recording"),
        ("pipe", "neither a folder nor a file"),
        ("x/y", "there is no such"),
    ],
)
def test_root__that_is_none(tmp_path: Path, name: str, what: str) -> None:
    """The message names the place and how to make a recording."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match=what) as caught, machine_root(tmp_path / name):
        pass
    assert caught.value.where == f"--sysroot {tmp_path / name}"
    assert "dpfedge probe --record" in str(caught.value)


def test_root__folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that may not be read is no empty machine."""
    monkeypatch.setattr(os, "access", lambda place, mode: False)

    with pytest.raises(UsageError, match="the folder may not be read"), machine_root(tmp_path):
        pass
