# SPDX-License-Identifier: Apache-2.0
"""How long a conversation is kept, and what ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dpfedge.errors import DpfError, UsageError
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.attend import attend
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.outbox import Outbox


def attended(script: Any) -> list[str]:
    """Run `script(state, provider)` with a conversation; what its client was sent."""
    written: list[str] = []

    async def write(text: str) -> None:
        written.append(text)

    async def reader(*_: Any) -> None:
        return None

    async def test() -> None:
        async def launch() -> Any:
            return None

        provider = Provider("fake", launch)
        state = Conversation(provider, Metrics(), Outbox(write), SessionConfig("fake", "joe"), reader)
        await script(state, provider)
        assert not provider.replaced

    asyncio.run(test())
    return written


def test_client_left__nothing_is_said() -> None:
    """The work is over when the client is gone."""

    async def script(state: Conversation, provider: Provider) -> None:
        assert await attend(state, asyncio.sleep(0)) is None

    assert attended(script) == []


def test_server_ends__client_is_told() -> None:
    """An error event, and the same error for whoever closes the connection."""

    async def script(state: Conversation, provider: Provider) -> None:
        asyncio.get_running_loop().call_later(0.01, provider.stopping.set)
        error = await attend(state, asyncio.sleep(60))
        assert isinstance(error, DpfError)

    [told] = attended(script)
    assert "shutting down" in told


def test_failure__is_passed_on() -> None:
    """What reading the client raises reaches the connection."""

    async def broken() -> None:
        raise UsageError("nonsense")

    async def script(state: Conversation, provider: Provider) -> None:
        with pytest.raises(UsageError):
            await attend(state, broken())

    assert attended(script) == []
