# SPDX-License-Identifier: Apache-2.0
"""The vocabulary file of a Moonshine model in, text of token ids out; it cuts no text into tokens.

Format (`tokenizer.bin`): entries in the order of their ids, each a length and that many bytes. A length below 128 is
one byte, a longer one two: b1·128 + b0 − 128. Entries 3 to 258 are raw bytes; U+2581 stands for a space.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from dpfedge.errors import ModelError

__all__ = ["Tokens"]

_SPACE = "\u2581".encode()
_SPECIAL = re.compile(rb"<.+>", re.DOTALL)
_ENTRY_MAX = 1024
_WHERE = "asset tokenizer.bin"


class Tokens:
    """The vocabulary; `len(tokens)` entries. Markers such as `<s>` and `<<ST_0>>` have no text."""

    def __init__(self, data: memoryview | bytes, *, first_special: int) -> None:
        """ModelError when the file does not end exactly with an entry."""
        entries = enumerate(_entries(memoryview(data)))
        self._entries = [b"" if _is_marker(index, entry, first_special) else entry for index, entry in entries]
        for index in range(3, min(259, len(self._entries))):
            self._entries[index] = bytes([index - 3])

    def __len__(self) -> int:
        return len(self._entries)

    def text(self, ids: Iterable[int]) -> str:
        """The words of a sequence, spaces tidied; bytes that are no UTF-8 are dropped."""
        joined = b"".join(self._entries[token] for token in ids).replace(_SPACE, b" ")
        return " ".join(joined.decode("utf-8", "ignore").split())


def _is_marker(index: int, entry: bytes, first_special: int) -> bool:
    return index < 3 or index >= first_special or _SPECIAL.fullmatch(entry) is not None


def _entries(data: memoryview) -> Iterator[bytes]:
    place = 0
    while place < len(data):
        start, length = place, data[place]
        place += 1
        if length >= 128:
            if place == len(data):
                raise ModelError("the vocabulary ends inside a length", where=f"{_WHERE}: byte {start}")
            length = data[place] * 128 + length - 128
            place += 1
        if length > min(_ENTRY_MAX, len(data) - place):
            left = min(_ENTRY_MAX, len(data) - place)
            where, allowed = f"{_WHERE}: byte {start}", f"{left} bytes"
            raise ModelError("entry is too long", where=where, found=length, allowed=allowed)
        yield bytes(data[place : place + length])
        place += length
