# SPDX-License-Identifier: Apache-2.0
"""Sidecar files: opened, refused, and opened again in another process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dpfedge.binding.sidecar import Sidecar
from dpfedge.errors import DigestError, FormatError, PackageError
from dpfedge.package import PackageWriter
from dpfedge.package.layout import HEADER_BYTES

SEAL: dict[str, Any] = {
    "package": bytes(32), "target": "t", "backend": "cpu", "driver": "", "device": {"arch": "x"}, "libraries": {},
    "built": [{"model": "llm", "graph": "step", "name": "packed", "section": "sealed.llm"}],
}  # fmt: skip


def write(path: Path, seal: dict[str, Any] | None) -> Path:
    with PackageWriter(path, name="small", version="1") as writer:
        writer.add("sealed.llm", "sealed", b"packed bytes")
        writer.finish({} if seal is None else {"seal": seal})
    return path


def test_open__what_was_built(tmp_path: Path) -> None:
    """By model and graph, mapped, with a descriptor of the same file."""
    sidecar = Sidecar.open(write(tmp_path / "größe 1.dpfbin.dpfseal", SEAL))
    view = sidecar.built("llm")["step"]["packed"]

    assert bytes(view.data) == b"packed bytes" == os.pread(view.file, 12, view.offset)
    assert view.offset % 65536 == 0
    assert sidecar.built("vad") == {}
    sidecar.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(view.file)
    assert bytes(view.data) == b"packed bytes"


def test_open__a_package(tmp_path: Path) -> None:
    """A package in a sidecar's place is named."""
    path = write(tmp_path / "x.dpfseal", None)

    with pytest.raises(FormatError) as caught:
        Sidecar.open(path)
    assert str(caught.value) == f"{path}: a package, not a sidecar; allowed a file of `dpfedge seal`"


def test_open__damaged(tmp_path: Path) -> None:
    """The one place that distrusts bytes distrusts these too."""
    path = write(tmp_path / "x.dpfseal", SEAL)
    data = bytearray(path.read_bytes())
    data[65536] ^= 1
    path.write_bytes(data)

    sidecar = Sidecar.open(path)
    sidecar.check({"llm"})
    with pytest.raises(DigestError, match=r"sealed\.llm"):
        sidecar.check()
    data[HEADER_BYTES // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(PackageError):
        Sidecar.open(path)


def test_again__only_the_same_content(tmp_path: Path) -> None:
    """Another process opens the file it was told of, not one that took its name."""
    path = write(tmp_path / "x.dpfseal", SEAL)
    opened = Sidecar.open(path)
    record = opened.record_map()

    assert Sidecar.again(record).record == Sidecar.open(path).record
    write(path, {**SEAL, "target": "other"})
    with pytest.raises(PackageError, match="the file was replaced while it was opened"):
        Sidecar.again(record)
    still = Path(f"/proc/self/fd/{opened.package.fileno()}")
    assert Sidecar.again(record, still).record == opened.record, "sealed anew while it was in use"
