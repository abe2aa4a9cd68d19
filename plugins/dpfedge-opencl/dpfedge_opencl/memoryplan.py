# SPDX-License-Identifier: Apache-2.0
"""One arena for all values of a plan: sizes and the steps they live from and to in, offsets out.

It knows no graph. Steps run one behind the other, so memory is free for others behind the last step that reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

__all__ = ["ALIGN", "assign"]

ALIGN = 128
"""Bytes; what the strictest device asks of a pointer (PoCL, for vectors of 16 floats)."""


def assign(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> tuple[list[int], int]:
    """(offset of each value, bytes of the arena); value i lives from step `first[i]` to `last[i]`, both included.

    Best fit over a list of gaps, in the order in which values begin, the largest first.
    """
    found, top = _assigned(tuple(_round(size) for size in sizes), tuple(first), tuple(last))
    return list(found), top


@lru_cache(maxsize=32)
def _assigned(sizes: Sequence[int], first: Sequence[int], last: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The same for rounded sizes; kept, as the next step of a decoder mostly has the sizes of the last."""
    offsets = [0] * len(sizes)
    ends: dict[int, list[int]] = {}
    gaps: list[tuple[int, int]] = []  # (offset, size), sorted, never touching
    top, now = 0, -1
    steps = sorted({*last})
    position = 0
    for index in sorted(range(len(sizes)), key=lambda one: (first[one], -sizes[one], one)):
        if first[index] > now:
            now = first[index]
            while position < len(steps) and steps[position] < now:
                for done in ends.pop(steps[position], ()):
                    _free(gaps, offsets[done], sizes[done])
                position += 1
        offsets[index], top = _take(gaps, sizes[index], top)
        ends.setdefault(last[index], []).append(index)
    return tuple(offsets), top


def _round(size: int) -> int:
    return max(ALIGN, size + -size % ALIGN)


def _take(gaps: list[tuple[int, int]], need: int, top: int) -> tuple[int, int]:
    """(offset, new top): the smallest gap that is large enough, or the end, with the gap before it."""
    best = -1
    for place, (_, size) in enumerate(gaps):
        if size >= need and (best < 0 or size < gaps[best][1]):
            best = place
    if best >= 0:
        offset, size = gaps[best]
        if size == need:
            del gaps[best]
        else:
            gaps[best] = (offset + need, size - need)
        return offset, top
    if gaps and sum(gaps[-1]) == top:
        offset, _ = gaps.pop()
        return offset, offset + need
    return top, top + need


def _free(gaps: list[tuple[int, int]], offset: int, size: int) -> None:
    place = 0
    while place < len(gaps) and gaps[place][0] < offset:
        place += 1
    if place < len(gaps) and offset + size == gaps[place][0]:
        size += gaps.pop(place)[1]
    if place and sum(gaps[place - 1]) == offset:
        before, more = gaps.pop(place - 1)
        offset, size, place = before, size + more, place - 1
    gaps.insert(place, (offset, size))
