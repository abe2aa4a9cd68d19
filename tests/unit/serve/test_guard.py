# SPDX-License-Identifier: Apache-2.0
"""Who is addressed and how much arrives, before the app sees it; a bare ASGI app stands behind the guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from dpfedge.limits import BODY_MAX_BYTES
from dpfedge.serve import guard
from dpfedge.serve.errors import RequestError
from dpfedge.serve.guard import Guard, is_loopback
from dpfedge.serve.http.answer import error_response


class Exchange:
    """One request through the guard; `app_read` is what the app got of the body."""

    def __init__(
        self, headers: dict[str, str], body: Sequence[bytes] = (b"",), *, server: Any = ("x", 1), read: bool = True
    ) -> None:
        self.app_read: list[bytes] | None = None
        self.sent: list[dict[str, Any]] = []
        self.received = 0
        self._read, self._body = read, list(body)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._scope = {"type": "http", "method": "POST", "path": "/", "headers": raw, "server": server}
        asyncio.run(asyncio.wait_for(Guard(self._app)(self._scope, self._receive, self._send), 30))

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.app_read = []
        while self._read:
            message = await receive()
            self.app_read.append(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer", "more_body": False})

    async def _receive(self) -> dict[str, Any]:
        self.received += 1
        body = self._body.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(self._body)}

    async def _send(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def closes(self) -> bool:
        return (b"connection", b"close") in self.sent[0]["headers"]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True), ("LOCALHOST.", True), ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True),
        ("[::1]", True), ("0.0.0.0", False), ("10.0.0.1", False), ("localhost.evil.example", False), ("", False),
        ("2130706433", False),
    ],
)  # fmt: skip
def test_loopback__by_the_literal_name_only(host: str, local: bool) -> None:
    """No name is looked up: one that points here today may point elsewhere tomorrow."""
    assert is_loopback(host) is local


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"host": "localhost", "origin": "http://evil.example"}])
def test_request__meant_for_somebody_else_is_403(headers: dict[str, str]) -> None:
    """The app never sees it."""
    exchange = Exchange(headers)

    assert exchange.status == 403
    assert exchange.app_read is None
    assert json.loads(exchange.sent[1]["body"])["error"]["code"] == "forbidden_host"


def test_request__over_a_unix_socket_may_name_any_host() -> None:
    """The socket file's mode says who may connect."""
    assert Exchange({"host": "evil.example"}, server=("/run/s.sock", None)).status == 200


def test_body__arrives_as_it_was_sent() -> None:
    """Piece by piece; the connection is kept."""
    exchange = Exchange({"host": "localhost", "content-length": "4"}, [b"ab", b"cd"])

    assert exchange.app_read == [b"ab", b"cd"]
    assert not exchange.closes


def test_body__declared_too_large_is_413_unread() -> None:
    """The app never sees it, and nothing is kept."""
    exchange = Exchange({"host": "localhost", "content-length": str(BODY_MAX_BYTES + 1)}, [b"x"] * 3)

    assert exchange.status == 413
    assert exchange.app_read is None
    assert exchange.closes


def test_body__unread_by_the_app_is_drained_behind_the_answer() -> None:
    """A small rest is read and dropped, so that the client gets the whole answer; then the connection ends."""
    exchange = Exchange({"host": "localhost", "content-length": "9"}, [b"abc"] * 3, read=False)

    assert exchange.closes
    assert exchange.received == 3
    assert b"".join(message.get("body", b"") for message in exchange.sent) == b"answer"
    assert exchange.sent[-1]["more_body"] is False


def test_body__of_a_client_that_waits_is_not_asked_for() -> None:
    """`Expect: 100-continue`: receiving would tell it to send what nobody wants, before the answer."""
    headers = {"host": "localhost", "content-length": "9", "expect": "100-continue"}
    exchange = Exchange(headers, [b"abc"] * 3, read=False)
    first = exchange.sent[1]

    assert exchange.closes
    assert (first["body"], first["more_body"]) == (b"answer", True)


class Stalled(Exchange):
    """Its body stops after the first part; the app answers with the refusal's text."""

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super()._app(scope, receive, send)
        except RequestError as error:
            await error_response(error)(scope, receive, send)

    async def _receive(self) -> dict[str, Any]:
        if self.received == 1:
            await asyncio.Event().wait()
        self.received += 1
        return {"type": "http.request", "body": b"abc", "more_body": True}


def test_body__that_stands_still_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no more is told so and frees its place."""
    monkeypatch.setattr(guard, "BODY_PAUSE_MAX_S", 0.05)
    monkeypatch.setattr(guard, "_LINGER_S", 0.01)
    exchange = Stalled({"content-length": "100"})

    assert exchange.status == 408
    assert exchange.closes
    message = json.loads(b"".join(part.get("body", b"") for part in exchange.sent))["error"]["message"]
    assert message.startswith("request body: the body arrives too slowly; found 3 bytes in 0 s; allowed 64 bytes/s")


def test_body__that_drips_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then keeps no place for ever."""
    monkeypatch.setattr(guard, "BODY_PAUSE_MAX_S", 0.01)
    monkeypatch.setattr(guard, "_LINGER_S", 0.01)

    class Dripping(Stalled):
        async def _receive(self) -> dict[str, Any]:
            await asyncio.sleep(0.002)
            return {"type": "http.request", "body": b"", "more_body": True}

    assert Dripping({"transfer-encoding": "chunked"}).status == 408
