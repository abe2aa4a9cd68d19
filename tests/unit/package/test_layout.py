# SPDX-License-Identifier: Apache-2.0
"""The header: packing and unpacking, and the order in which damage is named."""

from __future__ import annotations

import struct

import pytest
import xxhash

from dpfedge.errors import FormatError
from dpfedge.package.layout import HEADER_BYTES, MAGIC, Header, align, pack_header, unpack_header

HEADER = Header(192, 128, 45, bytes(range(32)), 192, 0)


def rehash(header: bytes) -> bytes:
    """The header with the hash that fits its other bytes."""
    return header[:-8] + struct.pack("<Q", xxhash.xxh3_64_intdigest(header[:-8]))


def test_header__round_trip() -> None:
    """Unpacking gives back what was packed."""
    assert unpack_header(pack_header(HEADER), "f") == HEADER


def test_header__each_byte_flipped() -> None:
    """Whatever single byte is changed, the header is refused."""
    data = pack_header(HEADER)
    for place in range(HEADER_BYTES):
        for mask in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[place] ^= mask
            with pytest.raises(FormatError, match="f: header byte"):
                unpack_header(bytes(changed), "f")


def test_header__text_mode_transfer() -> None:
    """The line-ending translation of a text-mode copy is named at the byte where it struck."""
    data = pack_header(HEADER).replace(b"\r\n", b"\n")

    with pytest.raises(FormatError, match="f: header byte 4: not a dpfedge package"):
        unpack_header(data, "f")


def test_header__unknown_major() -> None:
    """A future major version is refused with both versions."""
    data = bytearray(pack_header(HEADER))
    struct.pack_into("<HH", data, 8, 2, 7)

    with pytest.raises(FormatError, match=r"unknown format version; found 2\.7; allowed 1\.x"):
        unpack_header(rehash(bytes(data)), "f")


def test_header__longer_and_newer_minor() -> None:
    """A header that grew in a later minor version is read by its length."""
    data = bytearray(pack_header(HEADER)[:-8] + b"new field here!!" + bytes(8))
    struct.pack_into("<HI", data, 10, 3, len(data))

    header = unpack_header(rehash(bytes(data)) + b"behind", "f")

    assert (header.minor, header.header_bytes, header.manifest_bytes) == (3, 144, 45)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 127])
def test_header__cut(size: int) -> None:
    """A file shorter than the header says how many bytes it has."""
    with pytest.raises(FormatError, match=f"expected at least 128 bytes of header, have {size}"):
        unpack_header(pack_header(HEADER)[:size], "f")


@pytest.mark.parametrize("header_bytes", [0, 120, 129, 65544, 0xFFFFFFFF])
def test_header__bad_length(header_bytes: int) -> None:
    """A header length outside its range is refused before it is used."""
    data = bytearray(pack_header(HEADER))
    struct.pack_into("<I", data, 12, header_bytes)

    with pytest.raises(FormatError, match="header byte 12: bad header length"):
        unpack_header(bytes(data), "f")


def test_align__edges() -> None:
    """A multiple stays, anything else goes up."""
    assert [align(x, 64) for x in (0, 1, 64, 65)] == [0, 64, 64, 128]
    assert len(MAGIC) == 8
