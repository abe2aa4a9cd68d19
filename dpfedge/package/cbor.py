# SPDX-License-Identifier: Apache-2.0
"""Deterministic CBOR (RFC 8949 §4.2.1) in and out: values to bytes, and bytes that were walked first to values.

The walk refuses everything a manifest never needs: tags (hence shared references, bignums, dates), indefinite lengths,
non-finite floats, duplicate or unsorted keys, keys that are not text, longer encodings than necessary, nesting deeper
and items more numerous than `limits` says, and bytes behind the value. It knows nothing of the manifest's fields.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import cbor2

from dpfedge import limits
from dpfedge.errors import FormatError, UsageError

__all__ = ["decode", "encode", "walk"]

_INT64_MAX = (1 << 63) - 1
_ARGUMENT_BYTES = {24: 1, 25: 2, 26: 4, 27: 8}
_FLOATS = {25: (">e", 2), 26: (">f", 4), 27: (">d", 8)}
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = range(8)


def encode(value: Any) -> bytes:
    """The one deterministic encoding of `value`; UsageError names what CBOR or `walk` cannot take."""
    try:
        data = cbor2.dumps(value, canonical=True)
    except cbor2.CBOREncodeError as error:
        raise UsageError(f"value cannot be stored in a manifest: {error}") from error
    walk(data, "manifest to be written")
    return data


def decode(data: bytes, where: str) -> Any:
    """The value of `data`, after `walk` accepted every byte of it; FormatError says at which byte it did not."""
    walk(data, where)
    return cbor2.loads(data)


def walk(data: bytes, where: str) -> None:
    """Raise FormatError, naming the byte offset, unless `data` is exactly one value in the accepted form."""
    at, left, items, size = 0, 1, 0, len(data)
    previous: bytes | None = None  # the last key of the map being read; None in an array
    outer: list[tuple[int, bytes | None]] = []
    while True:
        while not left:
            if not outer:
                if at != size:
                    raise _error(where, at, "bytes behind the value", found=f"{size - at} bytes")
                return
            left, previous = outer.pop()
        left -= 1
        items += 1
        start, key = at, previous is not None and left & 1
        if at >= size:
            raise _cut(where, at, 0, 1)
        initial = data[at]
        if initial < 0xB8 and initial & 31 < 24:  # no tag, no simple value, and its argument in the same byte
            major, argument, at = initial >> 5, initial & 31, at + 1
        else:
            major, argument, at = _head(data, at, where)
        if key and major != _TEXT:
            raise _error(where, start, "key is not text")
        if major <= _NEGATIVE or major == _SIMPLE:
            continue
        if major <= _TEXT:
            at += argument
            if at > size:
                raise _cut(where, start, size - at + argument, argument)
            chunk = data[start:at]
            if major == _TEXT and not chunk.isascii():
                _check_text(data, at - argument, at, where)
            if key:
                if previous is not None and chunk <= previous:
                    raise _bad_key(where, start, chunk, previous)
                previous = chunk
            continue
        outer.append((left, previous))
        if len(outer) > limits.MANIFEST_MAX_DEPTH:
            raise _error(where, start, "nested too deep", found=len(outer), allowed=limits.MANIFEST_MAX_DEPTH)
        left, previous = (argument, None) if major == _ARRAY else (2 * argument, b"")
        if left > size - at:
            raise _error(where, start, "count is larger than the bytes left", found=argument, allowed=size - at)
        if items + left > limits.MANIFEST_MAX_ITEMS:
            raise _error(where, start, "too many items", found=items + left, allowed=limits.MANIFEST_MAX_ITEMS)


def _error(where: str, at: int, what: str, *, found: object = None, allowed: object = None) -> FormatError:
    return FormatError(what, where=f"{where} byte {at}", found=found, allowed=allowed)


def _cut(where: str, at: int, found: int, wanted: int) -> FormatError:
    return _error(where, at, "value is cut", found=f"{max(found, 0)} of {wanted} bytes")


def _head(data: bytes, start: int, where: str) -> tuple[int, int, int]:
    """Major type, argument and the offset behind them; numbers and simple values are complete then."""
    initial = data[start]
    major, info = initial >> 5, initial & 31
    if major == _TAG:
        raise _error(where, start, "tag or shared reference", found=f"byte {initial:#04x}", allowed="none")
    if info == 31:
        raise _error(where, start, "indefinite length", found=f"byte {initial:#04x}", allowed="definite lengths")
    if info < 24 and major != _SIMPLE:
        return major, info, start + 1
    if major == _SIMPLE:
        return major, 0, _simple(data, info, start, where)
    if info not in _ARGUMENT_BYTES:
        raise _error(where, start, "reserved length form", found=info)
    size = _ARGUMENT_BYTES[info]
    argument = int.from_bytes(_take(data, start, size, where), "big")
    if argument < (24 if size == 1 else 1 << (4 * size)):
        raise _error(where, start, "number is not in its shortest form", found=f"{argument} in {size} bytes")
    if argument > _INT64_MAX and major in (_UNSIGNED, _NEGATIVE):
        raise _error(where, start, "integer beyond 64 bits signed", found=argument)
    return major, argument, start + 1 + size


def _take(data: bytes, start: int, size: int, where: str) -> bytes:
    chunk = data[start + 1 : start + 1 + size]
    if len(chunk) != size:
        raise _cut(where, start, len(chunk), size)
    return chunk


def _simple(data: bytes, info: int, start: int, where: str) -> int:
    if info in (20, 21, 22):  # false, true, null
        return start + 1
    if info not in _FLOATS:
        raise _error(where, start, "unknown simple value", found=info, allowed="false, true, null")
    form, size = _FLOATS[info]
    value = float(struct.unpack(form, _take(data, start, size, where))[0])
    if not math.isfinite(value):
        raise _error(where, start, "number is not finite", found=value)
    if info > 25 and _fits(value, _FLOATS[info - 1][0]):
        raise _error(where, start, "number is not in its shortest form", found=f"{value} in {size} bytes")
    return start + 1 + size


def _check_text(data: bytes, start: int, end: int, where: str) -> None:
    text = data[start:end]
    if not text.isascii():
        try:
            text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _error(where, start + error.start, "text is not UTF-8") from error


def _bad_key(where: str, start: int, key: bytes, previous: bytes) -> FormatError:
    """Encoded keys must ascend, which also finds repeated ones."""
    what = "duplicate key" if key == previous else "keys are not sorted"
    return _error(where, start, what, found=repr(cbor2.loads(key)))


def _fits(value: float, form: str) -> bool:
    try:
        return bool(struct.unpack(form, struct.pack(form, value))[0] == value)
    except OverflowError:
        return False
