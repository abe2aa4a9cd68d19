# SPDX-License-Identifier: Apache-2.0
"""Every request passes here first: whom it was meant for, and how much of it may arrive; then the app, unchanged.

It reads no body. A web page that points the user's browser at this server is refused by its `Host` or `Origin`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpfedge.errors import DpfError
from dpfedge.limits import BODY_MAX_BYTES, BODY_PAUSE_MAX_S, BODY_RATE_MIN
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.answer import error_response
from dpfedge.serve.http.body import declared_length, too_large

__all__ = ["Guard", "is_loopback"]

_LINGER_S = 1.0
_LINGER_BYTES = 16 << 20


def is_loopback(host: str) -> bool:
    """Whether a literal address or `localhost` names this machine only; no name is looked up."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware; the outermost one that knows requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            _check_addressee(scope)
            _check_length(scope)
        except RequestError as error:
            await _refuse(scope, receive, send, error)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        upload = _Upload(scope, receive, send)
        await self._app(scope, upload.receive, upload.send)


async def _refuse(scope: Scope, receive: Receive, send: Send, error: DpfError) -> None:
    response = error_response(error)
    if scope["type"] == "websocket":
        await response(scope, receive, send)
        return
    upload = _Upload(scope, receive, send)
    await response(scope, upload.receive, upload.send)


def _check_addressee(scope: Scope) -> None:
    headers = Headers(scope=scope)
    server = scope.get("server")
    if server is None or server[1] is None:
        return  # a Unix socket: its file's mode says who may connect
    origin = headers.get("origin")
    named = {"host": urlsplit(f"//{headers.get('host', '')}").hostname, "origin": origin and urlsplit(origin).hostname}
    for header, host in named.items():
        if host and not is_loopback(host):
            raise RequestError(
                f"{header} is not this machine",
                status=403,
                where="request",
                found=host,
                allowed="localhost, 127.0.0.1, ::1",
                remedy="address the server as 127.0.0.1 or localhost",
                param=header,
                code="forbidden_host",
            )


def _check_length(scope: Scope) -> None:
    declared = declared_length(Headers(scope=scope))
    if declared is not None and declared > BODY_MAX_BYTES:
        raise too_large(declared, BODY_MAX_BYTES)


class _Upload:
    """Counts the body that arrives, and ends a connection gently whose body was not read to its end.

    Closing a socket with unread bytes makes the kernel send RST, and the client may lose the answer it should read. So
    the answer goes out whole first, then up to 16 MiB or one second more is read and dropped, then the connection ends.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        self._receive, self._send = receive, send
        self._seen = 0
        self._whole = "transfer-encoding" not in headers and not declared_length(headers)
        self._asks = "expect" in headers
        self._linger = False
        self._began = time.monotonic()

    async def receive(self) -> Message:
        message = await (self._receive() if self._whole else self._awaited())
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._seen > BODY_MAX_BYTES:
                raise too_large(f"more than {BODY_MAX_BYTES}", BODY_MAX_BYTES)
        else:
            self._whole = True
        return message

    async def _awaited(self) -> Message:
        """The next part of the body; an upload that stands still or drips holds a place others wait for."""
        age = time.monotonic() - self._began
        late = age > BODY_PAUSE_MAX_S and self._seen < BODY_RATE_MIN * age
        try:
            return await asyncio.wait_for(self._receive(), 0 if late else BODY_PAUSE_MAX_S)
        except TimeoutError:
            raise RequestError(
                "the body arrives too slowly",
                status=408,
                where="request body",
                found=f"{self._seen} bytes in {age:.0f} s",
                allowed=f"{BODY_RATE_MIN} bytes/s, no pause over {BODY_PAUSE_MAX_S} s",
                remedy="send the body without pauses, or use /v1/realtime for live audio",
                code="body_timeout",
            ) from None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not self._whole and not await self._ended():
            self._linger = True
            message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
        if self._linger and message["type"] == "http.response.body" and not message.get("more_body", False):
            await self._send({**message, "more_body": True})
            await self._drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def _ended(self) -> bool:
        """Whether the body has arrived whole after all; a client that asks first (`Expect`) is not told to send."""
        if self._asks:
            return False
        try:
            message = await asyncio.wait_for(self._receive(), 0.001)
        except TimeoutError:
            return False
        return not message.get("more_body", False)

    async def _drain(self) -> None:
        deadline, dropped = time.monotonic() + _LINGER_S, 0
        while dropped < _LINGER_BYTES:
            try:
                message = await asyncio.wait_for(self._receive(), max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                return
            dropped += len(message.get("body", b""))
            if not message.get("more_body", False):
                return
