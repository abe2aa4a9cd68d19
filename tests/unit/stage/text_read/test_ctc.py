# SPDX-License-Identifier: Apache-2.0
"""CTC's best path."""

from __future__ import annotations

import numpy as np
import pytest

from dpfedge.errors import ModelError, StageError
from dpfedge.stage.text_read.ctc import Characters, decode

CHARACTERS = Characters("a\nb\n\u2028\n🚗\n ".encode(), 6, "x")


def shares(*classes: int, sure: float = 0.9) -> np.ndarray:
    """Rows that are so sure of these classes."""
    rows = np.full((len(classes), 6), (1 - sure) / 5, np.float32)
    rows[np.arange(len(classes)), list(classes)] = sure
    return rows


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ((1, 1, 1), "a"),
        ((1, 0, 1), "aa"),
        ((0, 1, 1, 2, 2, 0), "ab"),
        ((1, 5, 2), "a b"),
        ((4, 0, 4, 3), "🚗🚗\u2028"),
        ((0, 0), ""),
        ((), ""),
    ],
)
def test_decode__repeats_and_blanks(classes: tuple[int, ...], text: str) -> None:
    """Neighbours that are equal are one character, unless a blank is between; blanks are none."""
    found, confidence = decode(shares(*classes), CHARACTERS)

    assert found == text
    assert confidence == (pytest.approx(0.9) if text else 0.0)


def test_decode__confidence_of_the_characters_only() -> None:
    """Blanks, and later steps of one character, do not count."""
    rows = np.concatenate([shares(1, sure=0.5), shares(1, 0, sure=0.9), shares(2, sure=0.7)])

    assert decode(rows, CHARACTERS) == ("ab", pytest.approx(0.6))


def test_decode__wrong_numbers() -> None:
    """Another number of classes, or shares that are none, belong to another model."""
    with pytest.raises(StageError, match=r"not shares of these characters; found f32\[2, 5\]; allowed f32\[steps, 6\]"):
        decode(np.ones((2, 5), np.float32), CHARACTERS)
    with pytest.raises(StageError, match="no numbers"):
        decode(np.full((2, 6), np.nan, np.float32), CHARACTERS)


def test_characters__must_fit_the_model() -> None:
    """One line per class but the blank, in UTF-8."""
    with pytest.raises(ModelError, match="not this model's; found 2 lines; allowed 5"):
        Characters(b"a\nb", 6, "x")
    with pytest.raises(ModelError, match="not UTF-8"):
        Characters(b"\xff\n" * 4, 6, "x")
