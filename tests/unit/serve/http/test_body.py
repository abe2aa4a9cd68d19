# SPDX-License-Identifier: Apache-2.0
"""JSON bodies, bounded while they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import Request

from dpfedge.limits import JSON_BODY_MAX_BYTES
from dpfedge.serve.errors import ClientGone, RequestError
from dpfedge.serve.http.body import declared_length, parse_object, read_json


class Body:
    """A request whose body arrives in pieces; None is a client that leaves."""

    def __init__(self, pieces: Sequence[bytes | None], length: int | None = None) -> None:
        self.left = list(pieces)
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        self.request = Request({"type": "http", "method": "POST", "headers": headers}, self._receive)

    async def _receive(self) -> dict[str, Any]:
        piece = self.left.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(self.left)}

    def read(self) -> dict[str, Any]:
        return asyncio.run(read_json(self.request))


def test_body__in_pieces_is_one_object() -> None:
    """Wherever it is cut."""
    assert Body([b'{"a"', b": [1", b"]}"]).read() == {"a": [1]}


def test_body__at_the_limit_and_over_it() -> None:
    """One byte more is 413, and the rest is not read."""
    frame = b'{"a": "%b"}'
    exact = frame % (b"x" * (JSON_BODY_MAX_BYTES - len(frame) + 2))
    assert len(exact) == JSON_BODY_MAX_BYTES
    assert Body([exact]).read()

    body = Body([exact, b" ", b" "])
    with pytest.raises(RequestError, match="more than") as caught:
        body.read()
    assert caught.value.http_status == 413
    assert len(body.left) == 1


def test_body__declared_too_large_is_refused_unread() -> None:
    """By its header alone."""
    body = Body([b"{}"], length=JSON_BODY_MAX_BYTES + 1)
    with pytest.raises(RequestError, match="too large"):
        body.read()
    assert body.left == [b"{}"]


def test_body__of_a_client_that_leaves() -> None:
    """Nobody reads an answer."""
    with pytest.raises(ClientGone):
        Body([b'{"a"', None]).read()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"1", b'{"a": NaN}', b"\xff{}", b"[" * 100_000, b'{"a": 1} x'])
def test_parse__anything_else_is_400(text: bytes) -> None:
    """Never another error."""
    with pytest.raises(RequestError) as caught:
        parse_object(text)
    assert (caught.value.code, caught.value.http_status) == ("invalid_json", 400)


def test_length__only_digits_count() -> None:
    """A chunked body declares none."""
    assert declared_length({"content-length": "12"}) == 12
    assert declared_length({}) is None
    assert declared_length({"content-length": "-1"}) is None
