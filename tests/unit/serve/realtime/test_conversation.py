# SPDX-License-Identifier: Apache-2.0
"""A connection's state when its client left in the middle of something."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.websockets import WebSocketDisconnect

from dpfedge.pipeline.events import SpeechStarted
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.turns import read_session


class Provider:
    """Opens one session that says something at once, and tells how many it was asked to end."""

    def __init__(self) -> None:
        self.runtime: Any = self
        self.ended = 0

    async def converse(self, *_: Any, **__: Any) -> Any:
        return self

    async def events(self) -> Any:
        yield SpeechStarted(1024, 0, 0)

    async def end(self, session: Any) -> None:
        self.ended += 1


def conversation(provider: Any, reader: Any) -> Conversation:
    async def write(text: str) -> None:
        raise WebSocketDisconnect(1006)

    return Conversation(provider, Metrics(), Outbox(write), SessionConfig("fake", "joe"), reader)


async def open_and_close(state: Conversation) -> None:
    await state.session()
    await asyncio.sleep(0.01)
    await state.close()


def test_close__after_the_client_left_in_mid_event() -> None:
    """The session's place is free again, and nothing is raised."""
    provider = Provider()

    asyncio.run(open_and_close(conversation(provider, read_session)))

    assert provider.ended == 1


def test_close__after_its_reader_failed() -> None:
    """A bug in the reader is told, and costs no place."""
    provider = Provider()

    async def reader(state: Any, session: Any) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(open_and_close(conversation(provider, reader)))

    assert provider.ended == 1
