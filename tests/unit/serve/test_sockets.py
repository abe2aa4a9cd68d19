# SPDX-License-Identifier: Apache-2.0
"""Listening sockets as the event loop gets them."""

from __future__ import annotations

import asyncio
import socket

from dpfedge.serve.sockets import listen_tcp


def test_connection__small_parts_leave_at_once() -> None:
    """TCP_NODELAY is set on what the server accepts: a token does not wait for the ACK of the one before."""
    found: list[int] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def connect() -> None:
        async with await asyncio.start_server(accept, sock=listen_tcp("127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await reader.read()
            writer.close()

    asyncio.run(connect())

    assert found == [1]
