# SPDX-License-Identifier: Apache-2.0
"""The lines of a frame in one message: written and read in place, and no number in it is trusted."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.errors import InputError
from dpfedge.stage.text_lines import lines_port, read_lines, reading_order, rows_of, strip_bytes, write_lines


def box(left: float, top: float, right: float, low: float) -> list[tuple[float, float]]:
    """Upright corners."""
    return [(left, top), (right, top), (right, low), (left, low)]


def message(widths: tuple[int, ...] = (16, 40)) -> np.ndarray:
    """Two lines, whose pixels say which one they are."""
    data = np.zeros(strip_bytes(widths, 48), np.uint8)
    corners = np.array([box(0, 10 * number, 5, 10 * number + 8) for number in range(len(widths))], np.float32)
    places = write_lines(data, corners.reshape(-1, 4, 2), np.linspace(0.9, 0.5, len(widths)), widths, 48, (480, 640))
    for number, place in enumerate(places):
        place[:] = number + 1
    return data


def test_lines__written_and_read_in_place() -> None:
    """Corners, scores and pixels come back; pixels are views of the message, aligned for vectors."""
    data = message()

    first, second = read_lines(data)

    assert (first.pixels.shape, second.pixels.shape) == ((48, 16, 3), (48, 40, 3))
    assert ((first.pixels == 1).all(), (second.pixels == 2).all()) == (True, True)
    assert np.shares_memory(first.pixels, data)
    assert (second.pixels.ctypes.data - data.ctypes.data) % 64 == 0
    assert (first.score, second.corners.tolist()) == (pytest.approx(0.9), [[0, 10], [5, 10], [5, 18], [0, 18]])


def test_lines__none() -> None:
    """A frame without text is a message, too."""
    data = message(())

    assert read_lines(data) == []
    assert data.size == strip_bytes((), 48) == 64


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda data: data[:8], "not the lines of a frame"),
        (lambda data: data.view(np.uint16), "not the lines of a frame"),
        (lambda data: data[:40], "the table ends behind the message"),
        (lambda data: data[:-1024], "a line ends behind the message"),
    ],
)
def test_read__cut_off(change: object, found: str) -> None:
    """A message that is too short, or of another kind, is refused."""
    with pytest.raises(InputError, match=found):
        read_lines(change(message()))  # type: ignore[operator]


@pytest.mark.parametrize(("place", "value"), [(0, 1 << 31), (4, 1 << 31), (4, 0), (16 + 36, 1 << 31), (16 + 40, 0)])
def test_read__hostile_numbers(place: int, value: int) -> None:
    """No number of the table leads out of the message: count, rows, place, width."""
    data = message()
    data[place : place + 4] = np.frombuffer(np.uint32(value).tobytes(), np.uint8)

    with pytest.raises(InputError, match="behind the message"):
        read_lines(data)


def test_port__holds_the_largest_message() -> None:
    """However the columns are shared between the lines."""
    port = lines_port(lines=3, columns=256, rows=48)

    for widths in ((256,), (100, 100, 56), (8, 8, 240)):
        assert strip_bytes(widths, 48) <= port.nbytes
    assert port.layout == "text-lines"


def test_reading_order__rows_then_columns() -> None:
    """Boxes whose centres nearly agree are one row, even when one is a little higher."""
    corners = np.array(
        [box(300, 12, 400, 42), box(0, 100, 90, 120), box(0, 10, 100, 40), box(100, 104, 180, 126)], np.float32
    )

    assert reading_order(corners).tolist() == [2, 0, 1, 3]
    assert rows_of(corners).tolist() == [0, 1, 0, 1]
    assert rows_of(corners[:0]).tolist() == []
    assert reading_order(corners[:0]).tolist() == []
