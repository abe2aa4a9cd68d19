# SPDX-License-Identifier: Apache-2.0
"""The vocabulary file."""

from __future__ import annotations

import pytest

from dpfedge.errors import ModelError
from dpfedge.stage.encoder.tokens import Tokens


def test_text__words_bytes_and_markers(vocabulary_bytes: bytes) -> None:
    """Words carry their space, markers no text, bytes join to UTF-8."""
    tokens = Tokens(vocabulary_bytes, first_special=320)

    assert tokens.text([1, 301, 302, 325, 2]) == "one two"
    assert tokens.text([301, 3 + 0xC3, 3 + 0xA9]) == "oneé"
    assert tokens.text([301, 3 + 0xC3]) == "one"
    assert len(tokens) == 340


def test_init__long_entry() -> None:
    """A length of two bytes is b1·128 + b0 − 128."""
    data = b"\0\0\0" + bytes([130, 1]) + b"x" * 130

    assert Tokens(b"\0" * 259 + data[3:], first_special=300).text([259]) == "x" * 130


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\x05abc", "found 5; allowed 3 bytes"),
        (b"\0\xff", "ends inside a length"),
        (b"\xff\xff" + b"x" * 9, "allowed 9"),
    ],
)
def test_init__damaged(data: bytes, text: str) -> None:
    """Bytes that do not end with an entry are refused with their place."""
    with pytest.raises(ModelError, match=text):
        Tokens(data, first_special=300)


def test_init__every_cut(vocabulary_bytes: bytes) -> None:
    """A file cut anywhere is either shorter by whole entries or refused."""
    for end in range(0, len(vocabulary_bytes), 7):
        try:
            tokens = Tokens(vocabulary_bytes[:end], first_special=320)
        except ModelError:
            continue
        assert len(tokens) < 340
