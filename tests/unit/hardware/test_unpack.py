# SPDX-License-Identifier: Apache-2.0
"""Tar files of recordings, also those made to do harm."""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpfedge import limits
from dpfedge.errors import UsageError
from dpfedge.hardware.source.root import Root
from dpfedge.hardware.unpack import unpack

Entry = tuple[str, bytes | str]
"""(name, content) of a file, or (name, target as text) of a link."""


def made(path: Path, *entries: Entry, kind: bytes = tarfile.SYMTYPE) -> Path:
    """A tar file with these entries, in this order."""
    with tarfile.open(path, "w") as tar:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            if isinstance(content, str):
                entry.type, entry.linkname = kind, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The empty folder to unpack into."""
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


def test_unpack__files_and_links(tmp_path: Path, inside: Path) -> None:
    """Links keep their text; the reader follows them inside the folder only."""
    source = made(tmp_path / "a.tar", ("./sys/link", "/proc/x"), ("proc/x", b"1\n"), ("sys/out", "/etc/hostname"))

    unpack(source, inside)
    root = Root(inside)
    assert (root.number("sys/link"), root.text("sys/out")) == (1, None)


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", b"x")],
        [("a/../../out", b"x")],
        [("/../out", b"x")],
        [("..", b"x")],
        [("a", "../.."), ("a/out", "target")],
        [("a", ".."), ("a/b/out", "target")],
    ],
)
def test_unpack__nothing_leaves_the_folder(tmp_path: Path, inside: Path, entries: list[Entry]) -> None:
    """Neither by names nor behind links."""
    before = sorted(tmp_path.rglob("*"))
    source = made(tmp_path.parent / f"{tmp_path.name}.tar", *entries)

    with pytest.raises(UsageError, match="this is no recording: the entry"):
        unpack(source, inside)
    assert sorted(path for path in tmp_path.rglob("*") if inside not in path.parents) == before


def test_unpack__file_is_never_written_through_a_link(tmp_path: Path, inside: Path) -> None:
    """A link that comes first, as in every attack of this kind, comes last."""
    source = made(tmp_path / "a.tar", ("a", str(tmp_path)), ("a/out", b"x"))

    with pytest.raises(UsageError, match="this is no recording"):
        unpack(source, inside)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_unpack__other_kinds_are_left_out(tmp_path: Path, inside: Path, kind: bytes) -> None:
    """Hard links, devices and pipes have no place in a recording."""
    unpack(made(tmp_path / "a.tar", ("a", "/etc/passwd"), ("b", b"x"), kind=kind), inside)

    assert [path.name for path in inside.iterdir()] == ["b"]


def test_unpack__large_files_are_cut_and_large_recordings_refused(
    tmp_path: Path, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file up to the probe's limit; a tar file beyond its own limit is not opened."""
    source = made(tmp_path / "a.tar", ("a", b"12345678"))
    monkeypatch.setattr(limits, "PROBE_FILE_MAX_BYTES", 4)
    unpack(source, inside)
    assert (inside / "a").read_bytes() == b"1234"

    monkeypatch.setattr(limits, "RECORDING_MAX_BYTES", 100)
    with pytest.raises(UsageError, match="too large; found 10240 bytes; allowed 100 bytes"):
        unpack(source, inside)


@pytest.mark.parametrize("damage", ["text", "cut", "gzip", "twice", "long"])
def test_unpack__what_is_no_recording(tmp_path: Path, inside: Path, damage: str) -> None:
    """Text, a compressed file, a cut one, one with a file where a folder is, an impossible name: each a usage error."""
    entries: list[Entry] = [("a", b"x" * 2000), ("a/b", b"y")] if damage == "twice" else [("a", b"x" * 2000)]
    source = made(tmp_path / "a.tar", *entries, *([("n" * 300, b"x")] if damage == "long" else []))
    data = source.read_bytes()
    source.write_bytes({"text": b"no tar " * 200, "cut": data[:1000], "gzip": gzip.compress(data)}.get(damage, data))

    with pytest.raises(UsageError, match="this is no recording"):
        unpack(source, inside)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 4095), st.binary(max_size=12)), min_size=1, max_size=6))
def test_unpack__of_changed_bytes(tmp_path: Path, changes: list[tuple[int, bytes]]) -> None:
    """Whatever a tar file holds, it is unpacked below the folder or refused as no recording."""
    source = made(tmp_path / "a.tar", ("proc/cpuinfo", b"x" * 700), ("l", "/etc"), ("sys/" + "n" * 150, b"y"))
    data = bytearray(source.read_bytes())
    for place, change in changes:
        data[place : place + len(change)] = change
    source.write_bytes(data)

    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        with contextlib.suppress(UsageError):
            unpack(source, Path(folder))
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["a.tar", Path(folder).name])
