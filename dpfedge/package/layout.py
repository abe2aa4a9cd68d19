# SPDX-License-Identifier: Apache-2.0
"""The fixed header of a package: fields to bytes and bytes to fields, and where things may lie.

It reads no file and knows nothing of the manifest's content.
"""

from __future__ import annotations

import struct

import xxhash

from dpfedge import limits
from dpfedge.errors import FormatError
from dpfedge.records import dataclass

__all__ = [
    "HEADER_BYTES", "MAGIC", "MAJOR", "MINOR", "TAIL_ALIGN", "Header", "align", "claimed_length", "pack_header",
    "unpack_header",
]  # fmt: skip

# The first byte has the high bit set, CR LF and LF are in it: a text-mode or 7-bit transfer damages it visibly.
MAGIC = b"\x89DPF\r\n\x1a\n"
MAJOR, MINOR = 1, 0
HEADER_BYTES = 128
TAIL_ALIGN = 64
"""Alignment of the manifest and of the signature area."""

_FIELDS = struct.Struct("<8sHHIQQQQQ32s32s")
_HASH = struct.Struct("<Q")
assert _FIELDS.size + _HASH.size == HEADER_BYTES


@dataclass(frozen=True, slots=True)
class Header:
    """The header's fields; offsets and sizes in bytes from the start of the file."""

    file_bytes: int
    manifest_offset: int
    manifest_bytes: int
    manifest_sha256: bytes
    signature_offset: int
    signature_bytes: int
    major: int = MAJOR
    minor: int = MINOR
    header_bytes: int = HEADER_BYTES


def align(offset: int, alignment: int) -> int:
    """The first multiple of `alignment` that is not below `offset`."""
    return -(-offset // alignment) * alignment


def pack_header(header: Header) -> bytes:
    """The 128 bytes of a version 1.0 header, its XXH3-64 last."""
    body = _FIELDS.pack(
        MAGIC, header.major, header.minor, header.header_bytes, header.file_bytes,
        header.manifest_offset, header.manifest_bytes, header.signature_offset, header.signature_bytes,
        header.manifest_sha256, bytes(32),
    )  # fmt: skip
    return body + _HASH.pack(xxhash.xxh3_64_intdigest(body))


def claimed_length(data: bytes) -> int:
    """What the first bytes of a file say of their header's length, unchecked; 0 where they do not reach so far."""
    return int.from_bytes(data[12:16], "little")


def unpack_header(data: bytes, where: str) -> Header:
    """Check magic, version and hash of a header; ranges are for `verify`. `data` holds the whole header or more."""
    if len(data) < HEADER_BYTES:
        _check_magic(data, where)
        raise FormatError(f"expected at least {HEADER_BYTES} bytes of header, have {len(data)}", where=where)
    magic, major, minor, header_bytes, *numbers, digest, reserved = _FIELDS.unpack_from(data)
    _check_magic(magic, where)
    if major != MAJOR:
        raise FormatError(
            "unknown format version", where=f"{where}: header byte 8", found=f"{major}.{minor}",
            allowed=f"{MAJOR}.x", remedy="use a dpfedge that reads this version, or compile the package again",
        )  # fmt: skip
    if not HEADER_BYTES <= header_bytes <= limits.PACKAGE_ALIGN or header_bytes % 8:
        allowed = f"{HEADER_BYTES} to {limits.PACKAGE_ALIGN}, a multiple of 8"
        raise FormatError("bad header length", where=f"{where}: header byte 12", found=header_bytes, allowed=allowed)
    if len(data) < header_bytes:
        what = f"expected {header_bytes} bytes of header, have {len(data)}"
        raise FormatError(what, where=f"{where}: header byte 12")
    _check_hash(data[:header_bytes], where)
    if minor == MINOR:
        _check_plain(header_bytes, reserved, where)
    file_bytes, manifest_offset, manifest_bytes, signature_offset, signature_bytes = numbers
    return Header(
        file_bytes, manifest_offset, manifest_bytes, digest, signature_offset, signature_bytes,
        major, minor, header_bytes,
    )  # fmt: skip


def _check_magic(magic: bytes, where: str) -> None:
    for index, (found, wanted) in enumerate(zip(magic, MAGIC, strict=False)):
        if found != wanted:
            raise FormatError(
                "not a dpfedge package", where=f"{where}: header byte {index}",
                found=bytes(magic[: len(MAGIC)]).hex(" "), allowed=MAGIC.hex(" "),
            )  # fmt: skip


def _check_plain(header_bytes: int, reserved: bytes, where: str) -> None:
    """A header of this very version has nothing that only a later one would understand."""
    if header_bytes != HEADER_BYTES:
        allowed = f"{HEADER_BYTES} in version {MAJOR}.{MINOR}"
        raise FormatError("bad header length", where=f"{where}: header byte 12", found=header_bytes, allowed=allowed)
    if any(reserved):
        raise FormatError("reserved bytes are not zero", where=f"{where}: header byte 88", found=reserved.hex())


def _check_hash(header: bytes, where: str) -> None:
    place = len(header) - _HASH.size
    (recorded,) = _HASH.unpack_from(header, place)
    actual = xxhash.xxh3_64_intdigest(header[:place])
    if actual != recorded:
        raise FormatError(
            "header hash differs, the header is damaged", where=f"{where}: header bytes 0 to {place}",
            found=f"{actual:016x}", allowed=f"{recorded:016x}", remedy="copy the file again",
        )  # fmt: skip
