# SPDX-License-Identifier: Apache-2.0
"""One turn of the runtime as events, counted and bounded by the server's life; a failed turn raises.

It speaks no HTTP.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from starlette.requests import Request

from dpfedge.pipeline.events import Event, Failed
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.noting import INSTANCE, note
from dpfedge.serve.provider import Provider
from dpfedge.stage.api import Mode

if TYPE_CHECKING:
    from dpfedge.serve.api import ServedRuntime

__all__ = ["run_turn"]


async def run_turn(
    request: Request, mode: str, start: Callable[[ServedRuntime], AsyncIterator[Event]]
) -> AsyncGenerator[Event, None]:
    """The events of `start(runtime)`; closing this, or cancelling who waits, cancels the request in every stage."""
    provider: Provider = request.app.state.provider
    metrics: Metrics = request.app.state.metrics
    with provider.using() as runtime:
        instance = provider.admit(Mode[mode.upper()])
        if instance is not None:
            note(request, INSTANCE, instance)
        async with aclosing(metrics.watch(mode, start(runtime))) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise event.error
                yield event
