# SPDX-License-Identifier: Apache-2.0
"""Work in, an HTTP answer out, for as long as somebody is there to read it: whole answers and streams.

A client that goes away, and a server that must end, cancel the work; cancelling is the work's own task. It knows no
endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dpfedge.errors import DpfError
from dpfedge.serve.errors import ClientGone, Stopping, error_body, error_headers, error_status
from dpfedge.serve.jsontext import json_bytes
from dpfedge.serve.provider import Provider

__all__ = ["DONE", "error_response", "gone", "sse", "stream_answer", "while_wanted"]

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def sse(data: Any, event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return b"%bdata: %b\n\n" % (head.encode(), json_bytes(data))


def error_response(error: DpfError) -> Response:
    """An error as OpenAI's clients expect it."""
    return Response(json_bytes(error_body(error)), error_status(error), error_headers(error), "application/json")


def ending() -> Stopping:
    """The error that ends an answer when the server must end."""
    return Stopping("the server is shutting down", where="server", remedy="send the request again")


async def gone(receive: Receive) -> None:
    """Return when the client has closed its connection; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        continue


async def while_wanted(provider: Provider, work: Coroutine[Any, Any, T], left: Callable[[], Awaitable[None]]) -> T:
    """`await work`, cancelled as soon as `left()` returns (ClientGone) or the server must end (Stopping)."""
    task = asyncio.ensure_future(work)
    client = asyncio.ensure_future(left())
    cut = asyncio.ensure_future(provider.cut.wait())
    try:
        await asyncio.wait({task, client, cut}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ending() if cut.done() else ClientGone("the client left before the answer", where="request")
    finally:
        await _end(task, client, cut)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what still runs and wait for it, so that its stages are free when this returns."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def stream_answer(
    request: Request,
    provider: Provider,
    parts: AsyncGenerator[bytes, None],
    media_type: str,
    failed: Callable[[DpfError], bytes] | None = None,
) -> Response:
    """An answer that leaves part by part; an error before the first part is an ordinary HTTP error.

    A later error becomes `failed(error)` as the last part; without `failed` the connection is cut, which is how HTTP
    says that a body is not whole.
    """
    try:
        first = await while_wanted(provider, _first(parts), lambda: gone(request.receive))
    except BaseException:
        await parts.aclose()
        raise
    return _Parts(provider, first, parts, media_type, failed)


async def _first(parts: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(parts)


class _Parts(Response):
    """A response whose first part is at hand."""

    def __init__(
        self,
        provider: Provider,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        media_type: str,
        failed: Callable[[DpfError], bytes] | None,
    ) -> None:
        super().__init__(b"", media_type=media_type, headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._provider, self._first, self._rest, self._failed = provider, first, rest, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                await while_wanted(self._provider, self._pump(send), lambda: gone(receive))
            except ClientGone:
                return
            except DpfError as error:
                if self._failed is None:
                    return
                await send({"type": "http.response.body", "body": self._failed(error), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for part in self._rest:
            await send({"type": "http.response.body", "body": part, "more_body": True})
