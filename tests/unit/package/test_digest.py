# SPDX-License-Identifier: Apache-2.0
"""Section digests: known values, in pieces as in one, and a file that shrinks while it is read."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import xxhash

from dpfedge.errors import FormatError
from dpfedge.package import PackageWriter, digest, open_package
from dpfedge.package.layout import unpack_header


def test_hasher__in_pieces() -> None:
    """Pieces of any size give the digests of the whole."""
    data = bytes(range(256)) * 5
    hasher = digest.Hasher()
    for start in range(0, len(data), 7):
        hasher.update(memoryview(data)[start : start + 7])

    assert hasher.digests() == (xxhash.xxh3_128(data).digest(), hashlib.sha256(data).digest())


def test_hasher__canonical_form() -> None:
    """XXH3-128 of nothing is the published value, most significant byte first."""
    assert digest.Hasher().digests()[0].hex() == "99aa06d3014798d86001c324468d497f"


def test_check_sections__several_chunks(package_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections larger than one chunk are read to their end."""
    monkeypatch.setattr(digest, "CHUNK_BYTES", 1000)
    open_package(package_file, check="full").close()


def test_check_sections__file_cut_meanwhile(package_file: Path) -> None:
    """A file cut between open and reading gives an error with the byte, not a signal."""
    with open_package(package_file, check="fast") as package, package_file.open("r+b") as file:
        header = unpack_header(file.read(128), "f")
        file.truncate(65536 + 100)

        with pytest.raises(FormatError, match="byte 65636: the file was cut while it was read"):
            digest.check_sections(file.fileno(), header, package.manifest, package_file)


def test_check_sections__ctrl_c_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not first when the section that is being read was read to its end, which takes minutes for a large one."""
    path = tmp_path / "large.dpfbin"
    with PackageWriter(path, name="large", version="1") as writer:
        writer.add("w", "weights", bytes(1000 * 64))
        writer.finish({})
    monkeypatch.setattr(digest, "CHUNK_BYTES", 64)
    preadv, reads = os.preadv, []

    def slow(fd: int, buffers: list[memoryview], offset: int) -> int:
        if len(reads) == 50:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        reads.append(offset)
        time.sleep(0.001)
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", slow)
    with pytest.raises(KeyboardInterrupt):
        open_package(path)
    assert len(reads) < 500
