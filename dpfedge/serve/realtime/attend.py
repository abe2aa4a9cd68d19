# SPDX-License-Identifier: Apache-2.0
"""A conversation kept for as long as its client stays and the server runs; then it is ended in every stage.

It reads no client and knows no connection: who does is given to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.serve.http.answer import ending
from dpfedge.serve.realtime.conversation import Conversation

__all__ = ["attend"]


async def attend(state: Conversation, obeying: Coroutine[Any, Any, None]) -> DpfError | None:
    """Run `obeying`, which does what the client asks until it leaves.

    Returns None then, or the error that the client was told when the server is told to end before. Raises what
    `obeying` raises. Meanwhile the conversation moves into a runtime that replaces its own.
    """
    provider = state.provider
    moving: set[asyncio.Task[bool]] = set()

    def move() -> None:
        task = asyncio.ensure_future(state.retire())
        moving.add(task)
        task.add_done_callback(moving.discard)

    provider.replaced.add(move)
    client = asyncio.ensure_future(obeying)
    stopping = asyncio.ensure_future(provider.stopping.wait())
    try:
        await asyncio.wait({client, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if client.done():
            client.result()
            return None
        error = ending()
        await state.end_response("failed", error=error)
        await state.out.error(error)
        return error
    finally:
        provider.replaced.discard(move)
        tasks = (client, stopping, *moving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await state.close()
