# SPDX-License-Identifier: Apache-2.0
"""The lines of text of one frame as one message: what `text-detect` writes in place and `text-read` reads in place.

One message per frame keeps a frame's lines together whatever a link drops. The layout, little-endian:

* at 0: u32 × 4: number of lines, rows of a line, height and width of the frame;
* at 16 + 44·i, of line i: f32[4,2] corners (x, y in pixels of the frame, from where reading starts, clockwise),
  f32 score, u32 place, u32 width;
* at each place, a multiple of 64: the line upright, u8[rows, width, 3] RGB.

It finds no text and reads none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import InputError
from dpfedge.records import dataclass
from dpfedge.stage.ports import Dim, Port

__all__ = ["LAYOUT", "Line", "lines_port", "read_lines", "reading_order", "rows_of", "strip_bytes", "write_lines"]

LAYOUT = "text-lines"
"""The ports' layout."""
_ALIGN = 64  # a cache line, as slots are aligned
_SAME_ROW = 0.5  # of the lower line's height: how far centres of one row may be apart
_HEAD = np.dtype([("count", "<u4"), ("rows", "<u4"), ("height", "<u4"), ("width", "<u4")])
_ENTRY = np.dtype([("corners", "<f4", (4, 2)), ("score", "<f4"), ("place", "<u4"), ("width", "<u4")])


@dataclass(frozen=True, slots=True)
class Line:
    """One line where it lies in the message."""

    corners: np.ndarray[Any, np.dtype[np.float32]]
    """f32[4,2]."""
    score: float
    pixels: np.ndarray[Any, np.dtype[np.uint8]]
    """u8[rows, width, 3]."""


def lines_port(lines: int, columns: int, rows: int) -> Port:
    """A port of frames with at most so many lines of together so many columns."""
    most = _up(_HEAD.itemsize + lines * _ENTRY.itemsize) + rows * columns * 3 + lines * _ALIGN
    return Port("u8", (Dim("bytes", _HEAD.itemsize, most),), layout=LAYOUT, slots=4)


def strip_bytes(widths: Sequence[int], rows: int) -> int:
    """Size of the message for lines of `widths` columns."""
    return _places(widths, rows)[-1]


def write_lines(
    message: Array, corners: Array, scores: Array, widths: Sequence[int], rows: int, frame: tuple[int, int]
) -> list[Array]:
    """Write the table into u8[≥ strip_bytes]; the views u8[rows, width, 3] that the pixels belong into."""
    places = _places(widths, rows)
    head, table = _views(message, len(widths))
    head[0] = (len(widths), rows, *frame)
    table["corners"], table["score"], table["place"], table["width"] = corners, scores, places[:-1], widths
    return [_pixels(message, place, rows, width) for place, width in zip(places, widths, strict=False)]


def read_lines(message: Array) -> list[Line]:
    """The lines in order, in place; InputError when a number in the table points out of the message."""
    if message.ndim != 1 or message.dtype != np.uint8 or message.size < _HEAD.itemsize:
        found = f"{message.dtype}{list(message.shape)}"
        raise InputError("not the lines of a frame", where="text lines", found=found, allowed="u8[16 or more]")
    count, rows = (int(number) for number in message[:8].view("<u4"))
    if _HEAD.itemsize + count * _ENTRY.itemsize > message.size:
        raise InputError("the table ends behind the message", where="text lines", found=f"{count} lines")
    return [_line(message, entry, rows) for entry in _views(message, count)[1]]


def _line(message: Array, entry: Any, rows: int) -> Line:
    place, width = int(entry["place"]), int(entry["width"])
    if not rows or not width or place + rows * width * 3 > message.size:
        found = f"{rows} × {width} at {place} of {message.size} bytes"
        raise InputError("a line ends behind the message", where="text lines", found=found)
    return Line(entry["corners"], float(entry["score"]), _pixels(message, place, rows, width))


def _views(message: Array, count: int) -> tuple[Array, Array]:
    start, stop = _HEAD.itemsize, _HEAD.itemsize + count * _ENTRY.itemsize
    return message[:start].view(_HEAD), message[start:stop].view(_ENTRY)


def _pixels(message: Array, place: int, rows: int, width: int) -> Array:
    return message[place : place + rows * width * 3].reshape(rows, width, 3)


def _places(widths: Sequence[int], rows: int) -> list[int]:
    """Where each line's pixels begin, and where the message ends."""
    places = [_up(_HEAD.itemsize + len(widths) * _ENTRY.itemsize)]
    for width in widths:
        places.append(_up(places[-1] + rows * width * 3))
    return places


def _up(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def reading_order(corners: Array) -> Array:
    """Order of f32[n,4,2]: rows from top to bottom, inside a row from left to right; `rows_of` says which row."""
    return np.lexsort((corners[:, :, 0].min(axis=1), rows_of(corners)))


def rows_of(corners: Array) -> Array:
    """The row of each of f32[n,4,2]: boxes whose centres differ by less than half the lower one's height share one."""
    top, low = corners[:, :, 1].min(axis=1), corners[:, :, 1].max(axis=1)
    centre, height = (top + low) / 2, low - top
    rows = np.zeros(len(corners), np.intp)
    order = np.argsort(centre, kind="stable")
    for before, here in pairwise(order):
        apart = centre[here] - centre[before] > _SAME_ROW * min(height[here], height[before])
        rows[here] = rows[before] + apart
    return rows
