# SPDX-License-Identifier: Apache-2.0
"""Byte-level byte pair encoding on tables as they lie in a package: text in, token ids out, and bytes of a token.

Nothing is parsed at a start but a short header: pairs are found by bisection, words of before are remembered. The
compiler writes the tables (`dpfedge.compiler.vocabulary`) and proves that they give the ids of the model's tokenizer.

Form, little-endian: u32 size of the header; the header, JSON, with spaces behind it up to a multiple of 8 bytes from
the beginning; for each pair in ascending order of `key` = left id · 2³² + right id its key as u64, then for each its
rank, then the id it becomes, both as u32; for each token the end of its bytes as u32; for each run of characters of one
class the first as u32; the bytes of the tokens; for each run its class as u8 (an index of `_STAND_INS`).
Algorithm: Sennrich et al., arXiv 1508.07909, as in the Hugging Face `tokenizers` library; words as in GPT-2.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from typing import Any

import numpy as np

from dpfedge.errors import ModelError

__all__ = ["Vocabulary", "byte_alphabet", "pack_tables"]

_REMEMBERED, _LONGEST = 8192, 64  # words, of so many characters at most; a long conversation has fewer
_NONE = (-1, -1)
_STAND_INS = "!z0\t"
"""Neither of the three, letter, number, white space: each is treated by GPT-2's rules as any other of its class."""
_WORD = re.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\t-\r A-Za-z0-9]+|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)
_DIGIT = re.compile("([0-9])")


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-in of each byte → the byte (openai/gpt-2, src/encoder.py: bytes_to_unicode)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


def pack_tables(
    header: Mapping[str, Any],
    pairs: Mapping[tuple[int, int], tuple[int, int]],
    tokens: Sequence[bytes],
    runs: Mapping[int, int],
) -> bytes:
    """The tables of (left, right) → (rank, id), of the tokens' bytes, and of first character → class.

    `header`: `added` (text → id), `specials` (those of them that are no text), `bytes` (id of each, −1 for none),
    `digits` (each number is a word).
    """
    keyed = sorted((left << 32 | right, *found) for (left, right), found in pairs.items())
    counts = {"pairs": len(keyed), "tokens": len(tokens), "runs": len(runs)}
    text = json.dumps({**header, **counts}, sort_keys=True).encode()
    text += b" " * (-(4 + len(text)) % 8)
    numbers = [*(rank for _, rank, _ in keyed), *(made for _, _, made in keyed), *accumulate(map(len, tokens)), *runs]
    parts = [len(text).to_bytes(4, "little"), text, *(key.to_bytes(8, "little") for key, _, _ in keyed)]
    return b"".join([*parts, *(number.to_bytes(4, "little") for number in numbers), *tokens, bytes(runs.values())])


class Vocabulary:
    """The tables of one model; they stay where they are."""

    specials: dict[str, int]
    """Text → id of the tokens that are no text of an answer."""
    size: int
    """Number of tokens."""

    def __init__(self, data: bytes | memoryview) -> None:
        """ModelError where `data` is something else."""
        try:
            view = memoryview(data)
            start = 4 + int.from_bytes(view[:4], "little")
            header = json.loads(bytes(view[4:start]))
            pairs, self.size, runs = (int(header[name]) for name in ("pairs", "tokens", "runs"))
            self._keys = _numbers(view, start, pairs, 8)
            start += 8 * pairs
            self._ranks, self._made = _numbers(view, start, pairs, 4), _numbers(view, start + 4 * pairs, pairs, 4)
            start += 8 * pairs
            self._ends = _numbers(view, start, self.size, 4)
            start += 4 * self.size
            stand_ins = _StandIns(_numbers(view, start, runs, 4), bytes(view[len(view) - runs :]))
            self._texts = view[start + 4 * runs : len(view) - runs]
            if len(self._texts) != (self._ends[-1] if self.size else 0):
                raise ValueError(f"the tokens have {len(self._texts)} bytes")
            self._added = {str(text): int(number) for text, number in header["added"].items()}
            self.specials = {text: self._added[text] for text in header["specials"]}
            self._first = [int(number) for number in header["bytes"]]
            self._digits = bool(header["digits"])
            self._check_ids()
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
            found, remedy = f"{type(error).__name__}: {error}", "compile the package again"
            raise ModelError("no tables of a vocabulary", where="asset", found=found, remedy=remedy) from error
        longest_first = sorted(self._added, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
        self._stand_ins = stand_ins
        self._known: dict[str, tuple[int, ...]] = {}

    def _check_ids(self) -> None:
        """ValueError for an id that is no token's: the model has no row for it."""
        if len(self._first) != 256:
            raise ValueError(f"{len(self._first)} ids of bytes, not 256")
        lowest = min(self._added.values(), default=0)
        made = [int(np.asarray(self._made).max())] if len(self._made) else []
        highest = max(*self._first, *self._added.values(), *made)
        if lowest < 0 or highest >= self.size:
            raise ValueError(f"ids from {lowest} to {highest} of {self.size} tokens")

    def encode(self, text: str) -> list[int]:
        """Token ids; the texts of added tokens in it become those tokens."""
        found: list[int] = []
        parts = [text] if self._split is None else self._split.split(text)
        for place, part in enumerate(parts):
            if place % 2:
                found.append(self._added[part])
            else:
                for word in self.words(part):
                    found += self._known.get(word) or self._remember(word)
        return found

    def words(self, text: str) -> list[str]:
        """GPT-2's words (openai/gpt-2, src/encoder.py), which no pair reaches beyond; joined they are the text."""
        plain = text if text.isascii() else text.translate(self._stand_ins)
        parts = _DIGIT.split(plain) if self._digits else [plain]
        words = [word for part in parts for word in _WORD.findall(part)]
        if plain is text:
            return words
        ends = accumulate(map(len, words))
        return [text[end - len(word) : end] for word, end in zip(words, ends, strict=True)]

    def bytes_of(self, token: int) -> bytes:
        """The bytes of a token; none of a special one, and of an id that is no token's."""
        if not 0 <= token < self.size:
            return b""
        return bytes(self._texts[self._ends[token - 1] if token else 0 : self._ends[token]])

    def _remember(self, word: str) -> tuple[int, ...]:
        data = word.encode()  # a byte that is no token is left out
        found = tuple(self._join([self._first[byte] for byte in data if self._first[byte] >= 0]))
        if len(word) <= _LONGEST:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[word] = found
        return found

    def _pair(self, left: int, right: int) -> tuple[int, int]:
        """(rank, id) of a pair that is a token; `_NONE` for another."""
        key = left << 32 | right
        place = bisect_left(self._keys, key)
        if place == len(self._keys) or self._keys[place] != key:
            return _NONE
        return self._ranks[place], self._made[place]

    def _join(self, ids: list[int]) -> list[int]:
        """Join the pair of the lowest rank, the first of several, until no two neighbours are a pair; -1: joined."""
        count, waiting = len(ids), list[tuple[int, int, int]]()
        after, before = list(range(1, count + 1)), list(range(-1, count - 1))
        pairs = _Pairs(self._pair)  # a long word has few different ones

        def wait(place: int, following: int) -> None:
            rank, made = pairs[ids[place], ids[following]]
            if made >= 0:
                heappush(waiting, (rank, place, made))

        for place in range(count - 1):
            wait(place, place + 1)
        while waiting:
            _, place, made = heappop(waiting)
            following = after[place]
            # one of the two may have been joined with another one since
            if ids[place] < 0 or following == count or pairs[ids[place], ids[following]][1] != made:
                continue
            ids[place], ids[following], after[place] = made, -1, after[following]
            if after[place] < count:
                before[after[place]] = place
                wait(place, after[place])
            if before[place] >= 0:
                wait(before[place], place)
        return [number for number in ids if number >= 0]


def _numbers(view: memoryview, start: int, count: int, size: int) -> memoryview:
    """`count` unsigned numbers of 8 or 4 bytes; ValueError where the bytes end before."""
    part = view[start : start + count * size]
    if len(part) != count * size:
        raise ValueError(f"{count} numbers do not fit at byte {start}")
    return part.cast("Q") if size == 8 else part.cast("I")


class _Pairs(dict[tuple[int, int], tuple[int, int]]):
    """Two ids → what `find` says of them, asked once."""

    def __init__(self, find: Callable[[int, int], tuple[int, int]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, pair: tuple[int, int]) -> tuple[int, int]:
        self[pair] = found = self._find(*pair)
        return found


class _StandIns(dict[int, int]):
    """Code of a character → that of its class's stand-in, looked up when it is met; ASCII stands for itself."""

    def __init__(self, starts: memoryview, kinds: bytes) -> None:
        super().__init__((number, number) for number in range(128))
        if not len(starts) or starts[0] or max(kinds) >= len(_STAND_INS):
            raise ValueError("the classes of characters do not begin with the first, or are none")
        self._starts, self._kinds = starts, kinds

    def __missing__(self, number: int) -> int:
        if len(self) >= _REMEMBERED:  # of the first 128 none is missed again
            for known in [code for code in self if code >= 128]:
                del self[known]
        self[number] = found = ord(_STAND_INS[self._kinds[bisect_right(self._starts, number) - 1]])
        return found
