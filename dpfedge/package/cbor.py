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
    walker = _Walker(data, where)
    walker.item(0)
    if walker.at != len(data):
        raise walker.error("bytes behind the value", walker.at, found=f"{len(data) - walker.at} bytes")


class _Walker:
    """One pass over the bytes; `at` is the offset of the next unread byte."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where, self.at, self.items = data, where, 0, 0

    def error(self, what: str, at: int, *, found: object = None, allowed: object = None) -> FormatError:
        return FormatError(what, where=f"{self.where} byte {at}", found=found, allowed=allowed)

    def item(self, depth: int) -> None:
        start = self.at
        self.items += 1
        if self.items > limits.MANIFEST_MAX_ITEMS:
            raise self.error("too many items", start, allowed=limits.MANIFEST_MAX_ITEMS)
        initial = self.take(1, start)[0]
        major, info = initial >> 5, initial & 31
        if major == _TAG:
            raise self.error("tag or shared reference", start, found=f"byte {initial:#04x}", allowed="none")
        if info == 31:
            raise self.error("indefinite length", start, found=f"byte {initial:#04x}", allowed="definite lengths")
        if major == _SIMPLE:
            self.simple(info, start)
            return
        argument = self.argument(info, start)
        if major in (_BYTES, _TEXT):
            self.string(major, argument, start)
        elif major in (_ARRAY, _MAP):
            self.container(major, argument, start, depth + 1)
        elif argument > _INT64_MAX:
            raise self.error("integer beyond 64 bits signed", start, found=argument)

    def take(self, count: int, start: int) -> bytes:
        chunk = self.data[self.at : self.at + count]
        if len(chunk) != count:
            raise self.error("value is cut", start, found=f"{len(chunk)} of {count} bytes")
        self.at += count
        return chunk

    def argument(self, info: int, start: int) -> int:
        if info < 24:
            return info
        if info not in _ARGUMENT_BYTES:
            raise self.error("reserved length form", start, found=info)
        size = _ARGUMENT_BYTES[info]
        value = int.from_bytes(self.take(size, start), "big")
        if value < (24 if size == 1 else 1 << (4 * size)):
            raise self.error("number is not in its shortest form", start, found=f"{value} in {size} bytes")
        return value

    def simple(self, info: int, start: int) -> None:
        if info in (20, 21, 22):  # false, true, null
            return
        if info not in _FLOATS:
            raise self.error("unknown simple value", start, found=info, allowed="false, true, null")
        form, size = _FLOATS[info]
        value = float(struct.unpack(form, self.take(size, start))[0])
        if not math.isfinite(value):
            raise self.error("number is not finite", start, found=value)
        if info > 25 and _fits(value, _FLOATS[info - 1][0]):
            raise self.error("number is not in its shortest form", start, found=f"{value} in {size} bytes")

    def string(self, major: int, size: int, start: int) -> None:
        chunk = self.take(size, start)
        if major == _TEXT:
            try:
                chunk.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.error("text is not UTF-8", self.at - size + error.start) from error

    def container(self, major: int, count: int, start: int, depth: int) -> None:
        if depth > limits.MANIFEST_MAX_DEPTH:
            raise self.error("nested too deep", start, found=depth, allowed=limits.MANIFEST_MAX_DEPTH)
        room = len(self.data) - self.at
        if count * (2 if major == _MAP else 1) > room:
            raise self.error("count is larger than the bytes left", start, found=count, allowed=room)
        previous = b""
        for _ in range(count):
            if major == _MAP:
                previous = self.key(previous, depth)
            self.item(depth)

    def key(self, previous: bytes, depth: int) -> bytes:
        start = self.at
        self.item(depth)
        key = self.data[start : self.at]
        if key[0] >> 5 != _TEXT:
            raise self.error("key is not text", start)
        if key == previous:
            raise self.error("duplicate key", start, found=repr(cbor2.loads(key)))
        if key < previous:
            raise self.error("keys are not sorted", start, found=repr(cbor2.loads(key)))
        return key


def _fits(value: float, form: str) -> bool:
    try:
        return bool(struct.unpack(form, struct.pack(form, value))[0] == value)
    except OverflowError:
        return False
