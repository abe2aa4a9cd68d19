# SPDX-License-Identifier: Apache-2.0
"""The strict CBOR walk: everything a manifest never needs is refused by name, with the byte offset."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge import limits
from dpfedge.errors import FormatError, UsageError
from dpfedge.package import cbor

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=30), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(VALUES)
def test_encode__decodes_to_the_same_value(value: Any) -> None:
    """What the encoder writes, the walk accepts and the decoder gives back."""
    assert cbor.decode(cbor.encode(value), "m") == value


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_walk__arbitrary_bytes(data: bytes) -> None:
    """Any bytes are refused with FormatError, or they are the deterministic encoding of what they decode to."""
    try:
        value = cbor.decode(data, "m")
    except FormatError:
        return
    assert cbor.encode(value) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("", "m byte 0: value is cut"),
        ("a1", "m byte 0: count is larger than the bytes left"),
        ("19 01", "m byte 0: value is cut; found 1 of 2 bytes"),
        ("65 61", "m byte 0: value is cut; found 1 of 5 bytes"),
        ("00 00", "m byte 1: bytes behind the value"),
        ("a2 61 61 00 61 61 01", "m byte 4: duplicate key; found 'a'"),
        ("a2 61 62 00 61 61 01", "m byte 4: keys are not sorted; found 'a'"),
        ("a1 01 00", "m byte 1: key is not text"),
        ("81 f9 7e00", "m byte 1: number is not finite; found nan"),
        ("f9 7c00", "m byte 0: number is not finite; found inf"),
        ("fa 3fc00000", "m byte 0: number is not in its shortest form"),
        ("fb 3ff8000000000000", "m byte 0: number is not in its shortest form"),
        ("18 17", "m byte 0: number is not in its shortest form"),
        ("19 00ff", "m byte 0: number is not in its shortest form"),
        ("1a 0000ffff", "m byte 0: number is not in its shortest form"),
        ("1b 00000000ffffffff", "m byte 0: number is not in its shortest form"),
        ("1b 8000000000000000", "m byte 0: integer beyond 64 bits signed"),
        ("3b 8000000000000000", "m byte 0: integer beyond 64 bits signed"),
        ("1c", "m byte 0: reserved length form; found 28"),
        ("9f ff", "m byte 0: indefinite length"),
        ("7f 61 61 ff", "m byte 0: indefinite length"),
        ("81 d8 1c 80", "m byte 1: tag or shared reference"),
        ("82 d8 1d 00 00", "m byte 1: tag or shared reference"),
        ("c2 41 01", "m byte 0: tag or shared reference"),
        ("f7", "m byte 0: unknown simple value; found 23"),
        ("f8 20", "m byte 0: unknown simple value; found 24"),
        ("62 c3 28", "m byte 1: text is not UTF-8"),
        ("9b 0000ffffffffffff", "m byte 0: count is larger than the bytes left"),
        ("5b 7fffffffffffffff 00", "m byte 0: value is cut"),
    ],
)
def test_walk__refuses_by_name(data: str, message: str) -> None:
    """Each forbidden form is refused with its name and its byte offset."""
    with pytest.raises(FormatError) as caught:
        cbor.walk(bytes.fromhex(data), "m")

    assert str(caught.value).startswith(message)


def test_walk__depth() -> None:
    """Exactly the allowed depth passes, one more is refused before anything recurses further."""
    depth = limits.MANIFEST_MAX_DEPTH
    cbor.walk(b"\x81" * depth + b"\x00", "m")

    with pytest.raises(FormatError, match="nested too deep; found 17; allowed 16"):
        cbor.walk(b"\x81" * 1_000_000 + b"\x00", "m")


def test_walk__items(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of items is bounded."""
    monkeypatch.setattr(limits, "MANIFEST_MAX_ITEMS", 10)
    cbor.walk(cbor.encode([0] * 9), "m")

    with pytest.raises(FormatError, match="too many items; found 11; allowed 10"):
        cbor.walk(b"\x8a" + bytes(10), "m")


@pytest.mark.parametrize("value", [object(), {1, 2}, 1 << 63, {1: 2}, 1j])
def test_encode__refuses_what_cannot_be_read_back(value: Any) -> None:
    """The encoder takes nothing that the walk refuses."""
    with pytest.raises((UsageError, FormatError)):
        cbor.encode(value)


def test_encode__not_finite() -> None:
    """NaN never gets into a manifest."""
    with pytest.raises(FormatError, match="not finite"):
        cbor.encode({"x": math.nan})
