# SPDX-License-Identifier: Apache-2.0
"""One fuzz input, for the fuzzer and for replays: both readers of packages get it, and must say the same of it.

The first byte says what the rest is, as in firmware_bridge/fuzz/fuzz_package.c:
    0       a whole file
    1       a whole file whose lengths and digests are put right first
    2 + n   a manifest behind n sections of which the last is short, or wherever its sections end
    255     a signature area (the Python reader only; the C reader does not look into it)
"""

from __future__ import annotations

import hashlib
import struct

import xxhash
from readers import ask_c, ask_c_manifest, ask_python, ask_python_manifest, disagreement, header_of

from dpfedge.errors import PackageError
from dpfedge.signing.area import read_area

__all__ = ["AREA", "try_input"]

AREA = 255


def try_input(data: bytes) -> None:
    """AssertionError when the readers differ; what a reader should not raise gets out as it is."""
    if len(data) < 2:
        return
    mode, rest = data[0], data[1:]
    if mode == AREA:
        _try_area(rest)
    elif mode <= 1:
        _try_file(_repaired(rest) if mode else rest)
    else:
        _try_manifest(rest, mode - 2)


def _try_file(data: bytes) -> None:
    for full in (False, True):
        differ = disagreement(ask_c(data, full=full), ask_python(data, full=full))
        assert not differ, differ


def _try_manifest(manifest: bytes, sections: int) -> None:
    end = 65536 * sections + 1 if sections else 0
    verdict = ask_c_manifest(manifest, header_of(manifest, sections_end=end))
    if verdict.rule == "section ends behind the start of the manifest":
        end = 1 << 37
    elif verdict.rule == "manifest does not follow the last section":
        end = verdict.allowed
    header = header_of(manifest, sections_end=end)
    differ = disagreement(ask_c_manifest(manifest, header), ask_python_manifest(manifest, header))
    assert not differ, differ


def _repaired(data: bytes) -> bytes:
    if len(data) < 128:
        return data
    offset, size = struct.unpack_from("<QQ", data, 24)
    digest = data[56:88]
    if offset <= len(data) and size <= len(data) - offset:
        digest = hashlib.sha256(data[offset : offset + size]).digest()
    head = b"\x89DPF\r\n\x1a\n\x01\0\0\0\x80\0\0\0" + struct.pack("<Q", len(data)) + data[24:56] + digest + bytes(32)
    return head + struct.pack("<Q", xxhash.xxh3_64_intdigest(head)) + data[128:]


def _try_area(data: bytes) -> None:
    for newer in (False, True):
        try:
            signatures = read_area(data, "area", newer=newer)
        except PackageError:
            continue
        keys = [signature.key_id for signature in signatures]
        assert keys == sorted(set(keys)), "key ids are not in order"
        assert newer or len(data) == (1 + 91 * len(keys)), "an area has more than its signatures"
