# SPDX-License-Identifier: Apache-2.0
"""An app, its provider and listening sockets in; a server that starts, answers and ends in bounded time.

It opens no socket, knows no endpoint, and leaves signals to its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from dpfedge.serve.provider import Provider
from dpfedge.serve.sockets import BACKLOG

__all__ = ["DRAIN_S", "Server"]

DRAIN_S = 1.5
"""How long running answers may go on once the server was told to end; with the stages' own end it stays below 5 s."""

_TICK_S = 1.0
_FULL = "socket.accept() out of system resource"  # asyncio's words
_FULL_AGAIN_S = 60.0
_log = logging.getLogger(__name__)
_MESSAGE_MAX_BYTES = 16 << 20  # one realtime event; OpenAI allows 15 MiB of audio in an append


class _Complaints:
    """asyncio's exception handler: everything as always, but that no descriptor is free once a minute.

    asyncio (to Python 3.13) says that for every place of the backlog, each second, with a traceback: a few idle clients
    too many would fill the disk.
    """

    def __init__(self) -> None:
        self._again_s = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") != _FULL:
            loop.default_exception_handler(context)
        elif loop.time() >= self._again_s:
            self._again_s = loop.time() + _FULL_AGAIN_S
            _log.warning(
                "connections have to wait: %s; close some, or raise `ulimit -n`", context["exception"].strerror
            )


class Server(uvicorn.Server):
    """uvicorn, which ends answers with a last event before it ends their connections."""

    _told = False
    _turning: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def __init__(self, app: ASGIApp, provider: Provider) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="websockets-sansio",
                ws_max_size=_MESSAGE_MAX_BYTES,
                ws_per_message_deflate=False,  # base64 PCM hardly shrinks and costs the event loop
                lifespan="off",
                log_config=None,
                access_log=False,
                backlog=BACKLOG,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._provider = provider

    @property
    def should_exit(self) -> bool:
        """Whether it was told to end; from any thread."""
        return self._told

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        self._told = value
        if value and self._turning is not None:
            loop, awake = self._turning
            with contextlib.suppress(RuntimeError):  # a loop that is closed needs no waking
                loop.call_soon_threadsafe(awake.set)

    async def main_loop(self) -> None:
        """Tell connections the date once a second, until the end; uvicorn's own looks ten times as often."""
        awake, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.set_exception_handler(_Complaints())
        self._turning = loop, awake
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(awake.wait(), _TICK_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let answers end, tell the rest to end, then close every connection."""
        for server in self.servers:
            server.close()
        await self._provider.stop(DRAIN_S)
        await super().shutdown(sockets)
