# SPDX-License-Identifier: Apache-2.0
"""The writer: same inputs give the same bytes, nothing half-written gets the name, misuse is refused."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedge.errors import FormatError, PackageError, UsageError
from dpfedge.package import PackageWriter, open_package


def test_add__offset_is_final(tmp_path: Path) -> None:
    """The record returned by `add` is the one in the finished package."""
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer:
        first = writer.add("a", "asset", b"1" * 65537)
        second = writer.add("b", "asset", iter([memoryview(b"22"), bytearray(b"3"), np.arange(2, dtype="<u2")]))
        empty = writer.add("c", "licence", b"")
        writer.finish({})

    with open_package(tmp_path / "p") as package:
        assert package.manifest.sections == (first, second, empty)
        assert (first.offset, second.offset, empty.size) == (65536, 196608, 0)
        assert bytes(package.section("b")) == b"223\0\0\1\0"
        assert bytes(package.section("c")) == b""


def test_finish__deterministic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Order of keys in the caller's maps does not matter; SOURCE_DATE_EPOCH is the only time."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "12345")

    def write(path: Path, manifest: dict[str, Any]) -> bytes:
        with PackageWriter(path, name="p", version="1") as writer:
            writer.add("a", "asset", b"x")
            writer.finish(manifest)
        return path.read_bytes()

    one = write(tmp_path / "1", {"compiler": {"a": 1, "b": 2}, "pipeline": {}})
    two = write(tmp_path / "2", {"pipeline": {}, "compiler": {"b": 2, "a": 1}})

    assert one == two
    assert open_package(tmp_path / "1").manifest.created == 12345


@pytest.mark.parametrize("epoch", ["tomorrow", "-5", "1e9"])
def test_finish__bad_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epoch: str) -> None:
    """A time that is no number of seconds is refused."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer, pytest.raises(UsageError, match="EPOCH"):
        writer.finish({})


def test_finish__refuses_what_would_not_open(tmp_path: Path) -> None:
    """A manifest that a reader would refuse is refused before the file gets its name."""
    path = tmp_path / "p"
    with PackageWriter(path, name="p", version="1") as writer, pytest.raises(FormatError, match="backend: wrong type"):
        writer.finish({"targets": [{"id": "x"}]})

    assert list(tmp_path.iterdir()) == []


def test_writer__keeps_the_old_file(tmp_path: Path) -> None:
    """An unfinished writer leaves the old file and nothing else."""
    path = tmp_path / "p"
    path.write_bytes(b"old")
    with PackageWriter(path, name="p", version="1") as writer:
        writer.add("a", "asset", b"x")

    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    assert path.read_bytes() == b"old"


def test_writer__full_disk(tmp_path: Path) -> None:
    """The file system's refusal becomes a PackageError with the path, and nothing stays behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (70000, hard))
    try:
        with (
            pytest.raises(PackageError, match="p: cannot write the package: File too large"),
            PackageWriter(tmp_path / "p", name="p", version="1") as writer,
        ):
            writer.add("a", "asset", bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


def test_writer__misuse(tmp_path: Path) -> None:
    """Names, kinds, order and layout of memory are checked where they are given."""
    with pytest.raises(UsageError, match="bad package name"):
        PackageWriter(tmp_path / "p", name="../x", version="1")
    with PackageWriter(tmp_path / "p", name="p", version="1") as writer:
        writer.add("a", "asset", b"x")
        with pytest.raises(UsageError, match="repeated section name"):
            writer.begin("a", "asset")
        with pytest.raises(UsageError, match="unknown section kind"):
            writer.begin("b", "thing")
        stream = writer.begin("b", "asset")
        with pytest.raises(UsageError, match="still open; found 'b'"):
            writer.add("c", "asset", b"x")
        with pytest.raises(UsageError, match="not contiguous"):
            stream.write(np.zeros((4, 4))[:, 1])
        with pytest.raises(UsageError, match="still open"):
            writer.finish({})
        stream.end()
        with pytest.raises(UsageError, match="sets these fields itself; found name"):
            writer.finish({"name": "q"})
        writer.finish({})
        with pytest.raises(UsageError, match="already finished"):
            writer.add("d", "asset", b"x")
