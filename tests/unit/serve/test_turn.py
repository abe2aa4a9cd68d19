# SPDX-License-Identifier: Apache-2.0
"""One turn of the runtime, counted; a failed one raises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from dpfedge.errors import StageDied
from dpfedge.pipeline.events import Event, Failed, TextDelta, TurnDone
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.provider import Provider
from dpfedge.serve.turn import run_turn


async def served() -> Any:
    """A request whose app has a warm runtime."""

    async def launch() -> Any:
        return SimpleNamespace(wait_ready=lambda: asyncio.sleep(0), ready=True, name="toy")

    provider = Provider("toy", launch)
    await provider.start()
    return SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(provider=provider, metrics=Metrics())))


async def play(*events: Event) -> AsyncIterator[Event]:
    for event in events:
        yield event


def test_turn__is_passed_on_and_counted() -> None:
    """In flight while it runs, done when it is done."""
    given = (TextDelta(1, 0, "a"), TurnDone(1, 0, "stop"))

    async def test() -> None:
        request = await served()
        provider = request.app.state.provider
        events = run_turn(request, "chat", lambda runtime: play(*given))
        assert await anext(events) == given[0]
        assert provider.active == 1
        assert [event async for event in events] == [given[1]]
        assert provider.active == 0
        text = request.app.state.metrics.render({}, True, 0)
        assert 'dpfedge_turns_total{finish="stop",mode="chat"} 1' in text

    asyncio.run(test())


def test_turn__that_fails_raises_its_error() -> None:
    """What came before has been given; nothing stays in flight."""

    async def test() -> None:
        request = await served()
        failed = Failed(1, 0, StageDied("died", stage="llm"))
        events = run_turn(request, "chat", lambda runtime: play(TextDelta(1, 0, "a"), failed))
        await anext(events)
        with pytest.raises(StageDied):
            await anext(events)
        assert request.app.state.provider.active == 0

    asyncio.run(test())
