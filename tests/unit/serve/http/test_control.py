# SPDX-License-Identifier: Apache-2.0
"""The control endpoint: over the Unix socket only, and what a refusal carries."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from dpfedge.errors import BindError
from dpfedge.serve.app import create_app

ID = "a" * 64


class ToySwitcher:
    """Notes what it is told; `refusal` is raised by `warm`."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.refusal: Exception | None = None

    async def warm(self, id: str) -> None:
        self.told.append(("warm", id))
        if self.refusal:
            raise self.refusal

    def switch(self, id: str) -> None:
        self.told.append(("switch", id))

    async def drop(self, id: str) -> None:
        self.told.append(("drop", id))


class ToyProvider:
    """A server that does not end."""

    def __init__(self) -> None:
        self.cut = asyncio.Event()


def post(switcher: Any, what: str, body: Any, server: Any = None, *, leaves: bool = False) -> tuple[int, Any]:
    """Status and body of the answer; `server` None is a Unix socket; whoever `leaves` does so at once."""

    async def ask() -> tuple[int, Any]:
        app: Any = create_app(ToyProvider(), switcher)  # type: ignore[arg-type]
        data = json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        path = f"/v1/control/{what}"
        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": headers, "server": server, "http_version": "1.1", "scheme": "http", "client": None,
        }  # fmt: skip
        messages = [{"type": "http.request", "body": data, "more_body": False}]
        sent: list[Any] = []

        async def receive() -> Any:
            if not messages and leaves:
                return {"type": "http.disconnect"}
            if not messages:
                await asyncio.sleep(3600)
            return messages.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        await app(scope, receive, send)
        return sent[0]["status"], json.loads(b"".join(one.get("body", b"") for one in sent))

    return asyncio.run(asyncio.wait_for(ask(), 30))


def test_control__does_what_it_is_told() -> None:
    """Three words."""
    switcher = ToySwitcher()
    for server in (None, ("/run/s.sock", None)):
        for what in ("warm", "switch", "drop"):
            assert post(switcher, what, {"id": ID}, server) == (200, {"done": True})

    assert switcher.told == [("warm", ID), ("switch", ID), ("drop", ID)] * 2


def test_control__switches_for_nobody_who_left() -> None:
    """The server stood still, and the slots are those of before by now."""
    switcher = ToySwitcher()
    post(switcher, "switch", {"id": ID}, leaves=True)

    assert switcher.told == []


def test_control__refusals_carry_the_exit_code() -> None:
    """Of the error that the package causes."""
    switcher = ToySwitcher()
    switcher.refusal = BindError("no target fits", where="x")
    status, body = post(switcher, "warm", {"id": ID})

    assert status == 500
    assert body["error"]["message"] == "x: no target fits"
    assert body["error"]["exit_code"] == 3


@pytest.mark.parametrize(
    ("what", "server", "present"),
    [("warm", ("127.0.0.1", 8080), True), ("other", None, True), ("warm", None, False)],
)
def test_control__is_not_there(what: str, server: Any, present: bool) -> None:
    """Over TCP, under another name, in a server that serves a file."""
    switcher = ToySwitcher() if present else None
    status, body = post(switcher, what, {"id": ID}, server)

    assert status == 404
    assert "no such endpoint" in body["error"]["message"]
    assert not present or (switcher is not None and switcher.told == [])


@pytest.mark.parametrize("body", [{}, {"id": "short"}, {"id": ID, "path": "/etc"}, []])
def test_control__takes_an_id_and_nothing_else(body: Any) -> None:
    """No path comes from outside."""
    assert post(ToySwitcher(), "warm", body)[0] == 400
