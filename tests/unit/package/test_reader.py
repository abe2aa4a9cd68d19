# SPDX-License-Identifier: Apache-2.0
"""The opened package: views in place, read-only, valid as long as they are held."""

from __future__ import annotations

import errno
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from dpfedge.errors import FormatError, PackageError, UsageError
from dpfedge.package import open_package


def test_section__bytes_in_place(package_file: Path) -> None:
    """Sections come as read-only views of the mapping, with tensors at their places."""
    with open_package(package_file) as package:
        assert bytes(package.section("graph")) == b"graph bytes"
        view = package.section("weights")
        assert view.readonly
        assert np.frombuffer(view, np.float32, 2000, 4096)[1999] == 1999.0


def test_section__unknown(package_file: Path) -> None:
    """A name that is not there is named."""
    with open_package(package_file, check="fast") as package, pytest.raises(FormatError, match="no such section"):
        package.section("nothing")


def test_close__views_stay_valid(package_file: Path) -> None:
    """A view outlives `close` and the file's name; the package itself gives nothing more."""
    package = open_package(package_file)
    view = np.frombuffer(package.section("graph"), np.uint8)
    package.close()
    package.close()
    package_file.unlink()

    assert view.tobytes() == b"graph bytes"
    with pytest.raises(ValueError, match="released"):
        package.section("graph")


def test_open__a_misspelt_check_is_none(package_file: Path) -> None:
    """It is not taken for the fast one."""
    with pytest.raises(UsageError, match="check: there is no such check; found 'Full'; allowed fast, full"):
        open_package(package_file, check="Full")  # type: ignore[arg-type]


def test_cut__is_an_error_where_signatures_are_read(package_file: Path) -> None:
    """Not a signal that ends the process; and a closed package reads no file that has its descriptor by now."""
    package = open_package(package_file, check="fast")
    os.truncate(package_file, 1000)

    with pytest.raises(FormatError, match="the file was cut while it was open; copy the file again"):
        package.manifest_bytes()
    package.close()
    with pytest.raises(ValueError, match="released"):
        package.signature()


def test_cut__between_check_and_mapping(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named, too; so is a file system that maps nothing."""
    for error, text in (
        (ValueError("mmap length is greater than file size"), "the file was cut while it was opened"),
        (OSError(errno.ENODEV, "No such device"), "cannot map the package: No such device"),
    ):

        def fail(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(mmap, "mmap", fail)
        with pytest.raises(PackageError, match=text):
            open_package(package_file, check="fast")


def test_open__leaves_no_descriptor(package_file: Path) -> None:
    """Neither success nor refusal keeps the file open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    package = open_package(package_file)
    package.close()
    with package_file.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(FormatError):
        open_package(package_file)

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_fast__touches_no_section(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast check reads before the first section and behind the last one only."""
    reads: list[tuple[int, int]] = []
    pread = os.pread

    def spy(fd: int, size: int, offset: int) -> bytes:
        reads.append((offset, offset + size))
        return pread(fd, size, offset)

    monkeypatch.setattr(os, "pread", spy)
    monkeypatch.setattr(os, "preadv", None)
    package = open_package(package_file, check="fast")
    first, last = package.manifest.sections[0], package.manifest.sections[-1]

    assert reads
    assert all(end <= first.offset or start >= last.end for start, end in reads)
