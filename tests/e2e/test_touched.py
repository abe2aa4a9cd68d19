# SPDX-License-Identifier: Apache-2.0
"""Opening and binding the demo package from a cold disk reads its header and manifest, and not one page of weights."""

from __future__ import annotations

import mmap
import shutil
from pathlib import Path

import pytest
from cached_pages import cached_pages, make_cold

from dpfedge.binding import bind_here
from dpfedge.package import open_package


def test_open_and_bind__read_header_and_manifest(voice_package: Path, tmp_path: Path) -> None:
    """The pages that the kernel has read, read-ahead included, are those of header and manifest."""
    copy = Path(shutil.copy(voice_package, tmp_path))
    if not make_cold(copy):
        pytest.skip("the kernel does not forget this file: its file system is memory")

    with open_package(copy, check="fast") as package:
        bind_here(package)
        read = sum(cached_pages(copy))
        header = package.header

    first, end = header.manifest_offset // mmap.PAGESIZE, header.manifest_offset + header.manifest_bytes
    assert read == 1 + (end - 1) // mmap.PAGESIZE - first + 1
    assert read * mmap.PAGESIZE < package.nbytes / 1000
