# SPDX-License-Identifier: Apache-2.0
"""Section digests: known values, in pieces as in one, and a file that shrinks while it is read."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from dpfedge._core import Sha256
from dpfedge.errors import DigestError, FormatError
from dpfedge.package import PackageWriter, digest, open_package
from dpfedge.package.layout import unpack_header
from dpfedge.package.verify import check_content


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


@pytest.fixture(params=[1, 2], ids=["one lane", "two lanes"])
def lanes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor without and with instructions for SHA-256."""
    if request.param > 1 and not Sha256.has_lanes():
        pytest.skip("this processor has no SHA-256 instructions")
    monkeypatch.setattr(digest, "_LANES", request.param)


SIZES = (0, 1, 63, 64, 65, 999, 1000, 1001, 5000, 64 * 20, 7)


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """A package whose sections end anywhere in a block and in a chunk."""
    path = tmp_path / "uneven.dpfbin"
    with PackageWriter(path, name="uneven", version="1") as writer:
        for index, size in enumerate(SIZES):
            writer.add(f"s{index}", "weights", bytes((index + place) % 251 for place in range(size)))
        writer.finish({})
    return path


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("chunk", [64, 1000, digest.CHUNK_BYTES])
def test_check_sections__several_chunks(uneven: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Sections larger than one chunk are read to their end, alone and side by side."""
    monkeypatch.setattr(digest, "CHUNK_BYTES", chunk)
    open_package(uneven, check="full").close()


@pytest.mark.usefixtures("lanes")
@pytest.mark.parametrize("check", ["full", "start"])
@pytest.mark.parametrize("index", range(1, len(SIZES)))
def test_check_sections__last_byte(uneven: Path, monkeypatch: pytest.MonkeyPatch, check: str, index: int) -> None:
    """A section whose last byte changed is named, by either check, with the digest that differs."""
    monkeypatch.setattr(digest, "CHUNK_BYTES", 1000)
    with open_package(uneven, check="fast") as package:
        section = package.manifest.sections[index]
        with uneven.open("r+b") as file:
            file.seek(section.end - 1)
            file.write(bytes([255]))
        name = "XXH3-128" if check == "full" else "SHA-256"
        run = open_package if check == "full" else lambda _: check_content(package, lambda section: True)
        with pytest.raises(DigestError, match=f"section 's{index}'.* its {name} differs"):
            run(uneven)


def test_check_sections__start_check_takes_no_second_digest(
    change_manifest: Callable[[Callable[[dict[str, Any]], object]], Path],
) -> None:
    """A wrong XXH3-128 in the manifest is found by the full check only."""
    path = change_manifest(lambda manifest: manifest["sections"][0].update(xxh3=bytes(16)))
    with pytest.raises(DigestError, match="XXH3-128 differs"):
        open_package(path)
    with open_package(path, check="fast") as package:
        check_content(package, lambda section: True)


def test_check_sections__file_cut_meanwhile(package_file: Path) -> None:
    """A file cut between open and reading gives an error with the byte, not a signal."""
    with open_package(package_file, check="fast") as package, package_file.open("r+b") as file:
        header = unpack_header(file.read(128), "f")
        file.truncate(65536 + 100)

        with pytest.raises(FormatError, match=r"byte \d{5,6}: the file was cut while it was read"):
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
