# SPDX-License-Identifier: Apache-2.0
"""The signature area: one encoding, and every other byte string is refused by name."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge import limits
from dpfedge.errors import FormatError
from dpfedge.signing.area import CONTEXT, Signature, message, pack_area, read_area

A, B = bytes(range(16)), bytes(range(1, 17))
ONE = [Signature(A, bytes(64))]
HEAD = bytes.fromhex("a201270450")

SIGNATURES = st.dictionaries(
    st.binary(min_size=16, max_size=16), st.binary(min_size=64, max_size=64), max_size=limits.SIGNATURES_MAX
)


def element(**changes: Any) -> list[Any]:
    """One COSE_Sign1 message with some of its parts changed."""
    parts = {"protected": HEAD + A, "unprotected": {}, "payload": None, "signature": bytes(64)} | changes
    return list(parts.values())


@given(SIGNATURES)
def test_pack__there_and_back(values: dict[bytes, bytes]) -> None:
    """In the order of keys, whatever order they came in."""
    signatures = [Signature(key, value) for key, value in values.items()]

    found = read_area(pack_area(signatures), "area")

    assert found == tuple(sorted(signatures, key=lambda one: one.key_id))
    assert pack_area(reversed(signatures)) == pack_area(signatures)


def test_pack__is_the_table_of_the_format() -> None:
    """Byte for byte; no signatures are no bytes."""
    data = pack_area([Signature(B, b"b" * 64), Signature(A, b"a" * 64)])

    rows = [b"\x84\x55" + HEAD + key + b"\xa0\xf6\x58\x40" + value * 64 for key, value in ((A, b"a"), (B, b"b"))]
    assert data == b"\x82" + rows[0] + rows[1]
    assert len(rows[0]) == 91
    assert (pack_area([]), read_area(b"", "area")) == (b"", ())


def test_message__is_the_sig_structure_of_the_rfc() -> None:
    """RFC 9052 §4.4, with our context as external_aad."""
    assert message(A, b"manifest") == cbor2.dumps(["Signature1", HEAD + A, CONTEXT, b"manifest"], canonical=True)
    assert CONTEXT == b"dpfedge.dpfbin.manifest.v1"
    assert message(A, b"m") != message(B, b"m")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "area: no signatures in it; allowed an area of 0 bytes, for none"),
        ({}, "area: wrong type or missing; found map; allowed array"),
        (None, "area: no signatures in it"),
        ([element()] * 17, "area: too many elements; found 17; allowed 16"),
        ([None], "area[0]: not a COSE_Sign1 message; found 0 parts; allowed 4"),
        ([element()[:3]], "area[0]: not a COSE_Sign1 message; found 3 parts; allowed 4"),
        ([[*element(), 1]], "area[0]: too many elements; found 5; allowed 4"),
        ([element(protected="text")], "area[0][0]: wrong type or missing; found text; allowed bytes"),
        (
            [element(protected=b"")],
            "area[0][0]: unknown signature algorithm; found nothing; allowed EdDSA (-8), then kid",
        ),
        (
            [element(protected=b"\xa2\x01\x26\x04\x50" + A)],  # ES256
            "area[0][0]: unknown signature algorithm; found a2 01 26 04 50 00 01 02; allowed EdDSA (-8), then kid",
        ),
        ([element(protected=b"\xa1\x01\x27")], "area[0][0]: unknown signature algorithm; found a1 01 27"),
        ([element(protected=HEAD + A[:-1])], "area[0][0]: bad key id"),
        ([element(protected=HEAD + A + b"x")], "area[0][0]: bad key id"),
        ([element(protected=HEAD[:-1] + b"\x51" + A)], "area[0][0]: bad key id"),
        ([element(unprotected={"x": 1})], "area[0][1]: unprotected header is not empty; found 1 entries"),
        ([element(unprotected=None)], "area[0][1]: unprotected header is missing; allowed an empty map"),
        ([element(unprotected=[])], "area[0][1]: wrong type or missing; found array; allowed map"),
        ([element(payload=b"")], "area[0][2]: payload is not detached; allowed null: the payload is the manifest"),
        ([element(signature=bytes(63))], "area[0][3]: digest has a wrong length; found 63; allowed 64"),
        ([element(signature=None)], "area[0][3]: wrong type or missing; found nothing"),
        ([element(), element()], f"area[1]: two signatures by one key; found {A.hex()}"),
        (
            [element(protected=HEAD + B), element()],
            "area[1]: signatures are not in the order of their keys; found 0001",
        ),
    ],
)
def test_read__refuses_by_name(value: Any, text: str) -> None:
    """The place inside the area, and what is allowed there."""
    with pytest.raises(FormatError) as caught:
        read_area(cbor2.dumps(value), "area")

    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pack_area(ONE) + b"\0", "area byte 92: bytes behind the value"),
        (b"\x9a\xff\xff\xff\xff", "area byte 0: count is larger than the bytes left"),
        (b"\x9b\x7f" + b"\xff" * 7, "area byte 0: count is larger than the bytes left"),
        (b"\xd2" + pack_area(ONE)[1:], "area byte 0: tag or shared reference"),  # COSE_Sign1_Tagged
        (b"\x9f" + pack_area(ONE)[1:] + b"\xff", "area byte 0: indefinite length"),
        (cbor2.dumps([element(unprotected={4: A})]), "area byte 25: key is not text"),
    ],
)
def test_read__refuses_other_encodings(data: bytes, text: str) -> None:
    """By the strict CBOR walk, at the byte."""
    with pytest.raises(FormatError) as caught:
        read_area(data, "area")

    assert str(caught.value).startswith(text)


def test_read__cut_at_any_byte() -> None:
    """Nothing shorter is an area, but the empty one."""
    data = pack_area([*ONE, Signature(B, bytes(64))])
    for size in range(1, len(data)):
        with pytest.raises(FormatError, match=r"^area"):
            read_area(data[:size], "area")


def test_read__each_byte_changed_is_another_area_or_none() -> None:
    """Only key ids and signatures may differ: every other byte is fixed."""
    data = pack_area(ONE)
    free = {*range(8, 24), *range(28, 92)}
    for place in range(len(data)):
        for mask in (0x01, 0x20, 0x80, 0xFF):
            changed = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
            if place in free:
                assert pack_area(read_area(changed, "area")) == changed
            else:
                with pytest.raises(FormatError, match=r"^area"):
                    read_area(changed, "area")


@settings(deadline=None)
@given(st.binary(max_size=400) | st.binary(max_size=300).map(lambda data: pack_area(ONE)[:9] + data))
def test_read__arbitrary_bytes(data: bytes) -> None:
    """Refused, or the one encoding of what they say."""
    try:
        signatures = read_area(data, "area")
    except FormatError:
        return
    assert pack_area(signatures) == data


def test_read__of_a_later_minor_passes_over_what_it_does_not_know() -> None:
    """Another algorithm of a newer package is no signature and no error; a malformed known one still is an error."""
    later = element(protected=b"\xa2\x01\x38\x30\x04\x50" + A, signature=bytes(3309))
    data = cbor2.dumps([later, element()])

    assert read_area(data, "area", newer=True) == (Signature(A, bytes(64)),)
    with pytest.raises(FormatError, match="unknown signature algorithm"):
        read_area(data, "area")
    with pytest.raises(FormatError, match="bad key id"):
        read_area(cbor2.dumps([later, element(protected=HEAD + A + b"x")]), "area", newer=True)


def test_pack__refuses_what_could_not_be_read() -> None:
    """Two of one key, too many, a wrong length."""
    for signatures in ([*ONE, *ONE], [Signature(bytes([n]) * 16, bytes(64)) for n in range(17)], [Signature(A, b"")]):
        with pytest.raises(FormatError, match=r"^signature area to be written"):
            pack_area(signatures)
