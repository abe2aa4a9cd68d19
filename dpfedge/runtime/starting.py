# SPDX-License-Identifier: Apache-2.0
"""A start that blocks, beside the loop: what it started comes out, or is ended when nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from dpfedge.pipeline.shortage import beside

__all__ = ["started"]


class Stops(Protocol):
    """What can be started."""

    def stop(self) -> None:
        """End it; blocks."""


S = TypeVar("S", bound=Stops)


async def started(start: Callable[[], S]) -> S:
    """What `start` returns, run in another thread; a cancel ends it before it goes on."""
    starting = asyncio.ensure_future(asyncio.to_thread(start))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # the thread cannot be cancelled; what it started is ended as soon as it is there
        await asyncio.wait({starting})
        if starting.exception() is None:
            await beside(starting.result().stop)
        raise
