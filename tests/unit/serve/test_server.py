# SPDX-License-Identifier: Apache-2.0
"""The server's own turn: it ends at once when told from any thread, and tells the date."""

from __future__ import annotations

import asyncio
import email.utils
import errno
import time
from typing import Any

import httpx
import pytest

from dpfedge.serve import server


def test_server__tells_the_date(own: Any) -> None:
    """As HTTP wants it, and of now: it turns once a second."""
    time.sleep(1.2)
    answer = httpx.get(f"{own.url}/healthz", timeout=20)
    told = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert abs(told - time.time()) < 30
    assert own.server.should_exit is False


def test_server__ends_when_told_by_another_thread(own: Any) -> None:
    """The setter wakes it; a second time, and after the end, it does nothing."""
    own.stop()
    own.stop()
    own.join()
    assert own.server.should_exit is True
    own.stop()


def test_server__without_a_free_descriptor_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """asyncio says it for each place of the backlog; anything else it says is said as always."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(server._Complaints())
        full = {"message": "socket.accept() out of system resource", "exception": OSError(errno.EMFILE, "Too many")}
        for _ in range(5):
            loop.call_exception_handler(full)
        loop.call_exception_handler({"message": "something else"})

    asyncio.run(main())
    told = [record.getMessage() for record in caplog.records]
    assert told == ["connections have to wait: Too many; close some, or raise `ulimit -n`", "something else"]


def test_server__is_asked_by_its_loop(own: Any) -> None:
    """The handler is in place once it answers."""
    assert httpx.get(f"{own.url}/healthz", timeout=20).status_code == 200
    loop, _ = own.server._turning
    assert isinstance(loop.get_exception_handler(), server._Complaints)
