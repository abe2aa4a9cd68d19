# SPDX-License-Identifier: Apache-2.0
"""A package that was cut or damaged anywhere is refused with a message that says where; nothing else escapes."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cbor2
import pytest

from dpfedge.errors import PackageError
from dpfedge.package import open_package, verify
from dpfedge.package.layout import Header, unpack_header

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


@pytest.fixture
def smallest(tmp_path: Path) -> Path:
    """A copy of the smallest golden package."""
    return Path(shutil.copy(GOLDEN / "smallest.dpfbin", tmp_path))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A copy of the golden package with sections."""
    return Path(shutil.copy(GOLDEN / "tiny.dpfbin", tmp_path))


def refusal(path: Path) -> str:
    """The message with which the fast check refuses the file."""
    with pytest.raises(PackageError) as caught:
        open_package(path, check="fast")
    text = str(caught.value)
    assert text.startswith(str(path))
    return text


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each place with its byte changed in several ways."""
    for place, byte in enumerate(data):
        for mask in (0x01, 0x20, 0x80, 0xFF):
            yield place, data[:place] + bytes([byte ^ mask]) + data[place + 1 :]


def test_cut__at_every_byte(smallest: Path) -> None:
    """Whatever is missing at the end, the message gives both lengths."""
    data = smallest.read_bytes()
    for size in range(len(data)):
        smallest.write_bytes(data[:size])
        assert f"have {size}" in refusal(smallest)


def test_cut__inside_sections(tiny: Path) -> None:
    """A file cut in header, sections, padding or manifest is refused without reading a section."""
    full = tiny.stat().st_size
    places = sorted({*range(0, full, 977), *range(full - 300, full), 127, 128, 129, 65535, 65536, 65537}, reverse=True)
    with tiny.open("r+b") as file:
        for size in places:
            file.truncate(size)
            text = refusal(tiny)
            assert f"have {size}" in text
            assert f"expected {full if size >= 128 else 'at least 128'} bytes" in text


def test_append__bytes_behind_the_end(tiny: Path) -> None:
    """A longer file is refused too."""
    with tiny.open("ab") as file:
        file.write(b"\0")
    assert "the file has bytes behind its end" in refusal(tiny)


def test_flip__every_byte_of_header_and_manifest(tiny: Path) -> None:
    """Any changed byte of header or manifest is refused by the fast check, with its part of the file."""
    data = tiny.read_bytes()
    header = unpack_header(data, "tiny")
    start, end = header.manifest_offset, header.manifest_offset + header.manifest_bytes
    with tiny.open("r+b", buffering=0) as file:
        for place, changed in flips(data[:128]):
            file.seek(0)
            file.write(changed)
            assert "header byte" in refusal(tiny), place
        file.seek(0)
        file.write(data[:128])
        for place, changed in flips(data[start:end]):
            file.seek(start)
            file.write(changed)
            assert f"bytes {start} to {end}: manifest is damaged" in refusal(tiny), place


def test_flip__every_part_by_the_full_check(tiny: Path) -> None:
    """The full check finds a changed byte in sections and in padding."""
    data = tiny.read_bytes()
    for place in random.Random(1).sample(range(128, len(data)), 60):
        with tiny.open("r+b") as file:
            file.seek(place)
            file.write(bytes([data[place] ^ 0x10]))
        with pytest.raises(PackageError, match=str(tiny)):
            open_package(tiny)
        tiny.write_bytes(data)


def test_manifest__forged_bytes() -> None:
    """Random damage to a manifest whose digest was made to fit gives a PackageError or a manifest, and nothing else."""
    data = (GOLDEN / "tiny.dpfbin").read_bytes()
    header = unpack_header(data, "tiny")
    manifest = data[header.manifest_offset : header.manifest_offset + header.manifest_bytes]
    dice, refused = random.Random(7), 0
    for _ in range(3000):
        changed = bytearray(manifest)
        for _ in range(dice.choice((1, 1, 2, 8))):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        refused += _refuses(bytes(changed), header)
    assert refused > 2000


def test_manifest__swapped_values() -> None:
    """Each value of the manifest replaced by one of another type is refused, or lies in a free-form field."""
    data = (GOLDEN / "tiny.dpfbin").read_bytes()
    header = unpack_header(data, "tiny")
    value = cbor2.loads(data[header.manifest_offset : header.manifest_offset + header.manifest_bytes])
    for key in value:
        for other in (None, True, -1, 1 << 62, 0.5, "", "x" * 70000, b"", [], [[]], [{}], {}, {"": 1}, {"a": {}}):
            _refuses(cbor2.dumps({**value, key: other}, canonical=True), header)


def _refuses(manifest: bytes, header: Header) -> bool:
    fitting = replace(header, manifest_bytes=len(manifest), manifest_sha256=hashlib.sha256(manifest).digest())
    try:
        verify.check_manifest(manifest, fitting, "forged")
    except PackageError as error:
        return str(error).startswith("forged: manifest")
    return False
