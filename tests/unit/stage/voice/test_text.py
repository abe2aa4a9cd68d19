# SPDX-License-Identifier: Apache-2.0
"""Written text becomes what a person would say."""

from __future__ import annotations

import pytest

from dpfedge.stage.voice.text import normalise, speakable


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Dr. Smith, e.g. at 21°C", "Doctor Smith, for example at 21 degrees Celsius"),
        ("50 km/h or 3.5 km", "50 kilometres per hour or 3.5 kilometres"),
        ("It costs $3.50, or €1, or $2.00.", "It costs 3 dollars 50, or 1 euro, or 2 dollars."),
        ("7 + 3 = 10", "7 plus 3 equals 10"),
        ("Turn left 🚗\u200d now\x00!\n", "Turn left now !"),
        ("naïve café", "naïve café"),
        ("80% at 10:30", "80% at 10:30"),
        ("I moved in 1999 kms", "I moved in 1999 kms"),
    ],
)
def test_normalise__says_what_is_meant(written: str, said: str) -> None:
    """Abbreviations, units, money and signs become words; pictures and control characters go."""
    assert normalise(written) == said


@pytest.mark.parametrize(
    ("text", "expected"), [("...", False), ("", False), ("?! -", False), ("ok", True), ("7", True), ("日", True)]
)
def test_speakable__needs_a_letter_or_digit(text: str, expected: bool) -> None:
    """Punctuation alone is nothing to say."""
    assert speakable(text) is expected
