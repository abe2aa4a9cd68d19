# SPDX-License-Identifier: Apache-2.0
"""Answers live as long as somebody reads them: whole, streamed, left, and cut by the server's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request

from dpfedge.errors import Busy, StageDied
from dpfedge.serve.errors import ClientGone, Stopping
from dpfedge.serve.http.answer import error_response, sse, stream_answer, while_wanted
from dpfedge.serve.provider import Provider


class Wire:
    """One HTTP exchange; the client leaves when `leave` is set."""

    def __init__(self) -> None:
        self.leave, self.sent = asyncio.Event(), list[dict[str, Any]]()
        self.scope = {"type": "http", "method": "GET", "headers": []}
        self.request = Request(self.scope, self.receive)

        async def launch() -> Any:
            raise AssertionError

        self.provider = Provider("toy", launch)
        self.closed = False

    async def receive(self) -> dict[str, Any]:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(dict(message))

    async def parts(self, *steps: Any) -> AsyncGenerator[bytes, None]:
        """Bytes are given, errors raised, events waited for."""
        try:
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                else:
                    yield step
        finally:
            self.closed = True

    async def answer(self, *steps: Any, failed: Any = None) -> None:
        response = await stream_answer(self.request, self.provider, self.parts(*steps), "text/plain", failed)
        await response(self.scope, self.receive, self.send)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def run(test: Callable[[Wire], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(test(Wire()), 30)

    asyncio.run(main())


def test_event__is_one_sse_record() -> None:
    """With its name where it has one."""
    assert sse({"a": "ü"}) == 'data: {"a":"ü"}\n\n'.encode()
    assert sse({}, "done") == b"event: done\ndata: {}\n\n"


def test_error__is_a_response() -> None:
    """Status, header and body."""
    response = error_response(Busy("full", retry_after_s=2))

    assert (response.status_code, response.headers["retry-after"]) == (429, "2")
    assert json.loads(response.body)["error"]["code"] == "rate_limit_exceeded"


def test_stream__gives_its_parts_and_an_end() -> None:
    """One message a part; never stored by caches."""

    async def test(wire: Wire) -> None:
        await wire.answer(b"a", b"b")
        assert [message.get("body") for message in wire.sent[1:]] == [b"a", b"b", b""]
        assert wire.sent[-1]["more_body"] is False
        headers = dict(wire.sent[0]["headers"])
        assert headers[b"cache-control"] == b"no-store"
        assert b"content-length" not in headers

    run(test)


def test_stream__error_before_the_first_part_is_an_ordinary_error() -> None:
    """Nothing was sent, so a status can still be given."""

    async def test(wire: Wire) -> None:
        with pytest.raises(Busy):
            await wire.answer(Busy("full"))
        assert wire.sent == []
        assert wire.closed

    run(test)


def test_stream__later_error_is_the_last_part() -> None:
    """Or, where the format has no place for one, an end without an end."""

    async def test(wire: Wire) -> None:
        await wire.answer(b"a", StageDied("died", stage="llm"), failed=lambda error: f"<{error.what}>".encode())
        assert wire.body == b"a<died>"
        assert wire.sent[-1]["more_body"] is False

        other = Wire()
        await other.answer(b"a", StageDied("died", stage="llm"))
        assert other.body == b"a"
        assert other.sent[-1]["more_body"] is True

    run(test)


def test_stream__of_a_client_that_leaves_is_closed() -> None:
    """Its stages are free when this returns."""

    async def test(wire: Wire) -> None:
        asyncio.get_running_loop().call_later(0.01, wire.leave.set)
        await wire.answer(b"a", asyncio.Event())
        assert wire.closed
        assert wire.body == b"a"

    run(test)


@pytest.mark.parametrize(("how", "error"), [("leave", ClientGone), ("cut", Stopping)])
def test_work__nobody_wants_is_cancelled(how: str, error: type[Exception]) -> None:
    """The client left, or the server must end."""

    async def test(wire: Wire) -> None:
        cancelled = []

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        ends = wire.leave if how == "leave" else wire.provider.cut
        asyncio.get_running_loop().call_later(0.01, ends.set)
        with pytest.raises(error):
            await while_wanted(wire.provider, work(), wire.leave.wait)
        assert cancelled == [True]

    run(test)


def test_work__that_is_done_is_given() -> None:
    """Its result, or its own error."""

    async def test(wire: Wire) -> None:
        async def work() -> int:
            return 7

        async def fail() -> int:
            raise Busy("full")

        assert await while_wanted(wire.provider, work(), wire.leave.wait) == 7
        with pytest.raises(Busy):
            await while_wanted(wire.provider, fail(), wire.leave.wait)

    run(test)
