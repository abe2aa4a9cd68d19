# SPDX-License-Identifier: Apache-2.0
"""Sampled pages: what they find after a power loss, and what they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.errors import DigestError, PackageError
from dpfedge.store import sample as module
from dpfedge.store.sample import Sample, check_sample, take_sample

MIB = 1 << 20


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three windows; the second begins with zeros, the last is a few bytes."""
    path = tmp_path / "file"
    data = bytearray(b"weights " * (MIB // 8) + bytes(8192) + b"more    " * ((MIB - 8192) // 8) + b"end")
    path.write_bytes(data)
    return path


def test_take_sample__one_page_of_each_window(file: Path) -> None:
    """The first that is not zero; and it survives being written down."""
    sample = take_sample(file, file.stat().st_size)

    assert list(sample.pages) == [0, MIB + 8192, 2 * MIB]
    assert Sample.of(sample.record()) == sample
    check_sample(file, sample)


@pytest.mark.parametrize("start", [0, MIB])
def test_check_sample__finds_a_zero_filled_window(file: Path, start: int) -> None:
    """As delayed allocation leaves one; the first page that differs is named."""
    sample = take_sample(file, file.stat().st_size)
    with file.open("r+b") as out:
        out.seek(start)
        out.write(bytes(MIB))
    place = start + (8192 if start else 0)

    with pytest.raises(DigestError, match=rf"bytes {place} to {place + 4096}: an installed file is damaged"):
        check_sample(file, sample)


def test_check_sample__does_not_see_between_the_pages(file: Path) -> None:
    """STORE.md says so; a full check does."""
    sample = take_sample(file, file.stat().st_size)
    with file.open("r+b") as out:
        out.seek(100_000)
        out.write(b"x")

    check_sample(file, sample)


def test_check_sample__of_a_file_that_is_gone(tmp_path: Path) -> None:
    """A package error, not an OSError."""
    with pytest.raises(PackageError, match="cannot open the package: No such file"):
        check_sample(tmp_path / "x", Sample(MIB, {0: 1}))


def test_take_sample__is_bounded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A huge file gets larger windows, not more pages."""
    monkeypatch.setattr(module, "_PAGES_MAX", 2)
    monkeypatch.setattr(module.limits, "MIB", 4096)

    assert len(take_sample(file, file.stat().st_size).pages) <= 3


def test_take_sample__of_nothing_but_zeros(tmp_path: Path) -> None:
    """No page, nothing to compare."""
    path = tmp_path / "zeros"
    path.write_bytes(bytes(5 * 4096))

    assert take_sample(path, 5 * 4096).pages == {}
