# SPDX-License-Identifier: Apache-2.0
"""WS /v1/realtime: a WebSocket in, one conversation for as long as it is open.

It neither decodes client events nor makes server events; `commands.py` and `turns.py` do.
"""

from __future__ import annotations

import asyncio

from starlette.websockets import WebSocket, WebSocketDisconnect

from dpfedge.errors import DpfError
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.answer import ending, error_response
from dpfedge.serve.http.models import check_model
from dpfedge.serve.http.speech import voices
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.commands import obey
from dpfedge.serve.realtime.config import SessionConfig
from dpfedge.serve.realtime.conversation import Conversation
from dpfedge.serve.realtime.outbox import Outbox
from dpfedge.serve.realtime.turns import read_session

__all__ = ["realtime"]

_GOING_AWAY = 1001
_SUBPROTOCOL = "realtime"


async def realtime(socket: WebSocket) -> None:
    """The endpoint; a model that is not served, or a server that is not ready, refuses the handshake."""
    provider: Provider = socket.app.state.provider
    try:
        model = check_model(provider, socket.query_params.get("model") or provider.name, "llm")
        voice = next(iter(voices(provider)), "")
        with provider.connected():
            await _converse(socket, SessionConfig(model, voice))
    except DpfError as error:
        await socket.send_denial_response(error_response(error))


async def _converse(socket: WebSocket, config: SessionConfig) -> None:
    provider: Provider = socket.app.state.provider
    offered = socket.scope.get("subprotocols", [])
    await socket.accept(subprotocol=_SUBPROTOCOL if _SUBPROTOCOL in offered else None)
    out = Outbox(socket.send_text)
    state = Conversation(provider, socket.app.state.metrics, out, config, read_session)
    moving: set[asyncio.Task[bool]] = set()

    def move() -> None:
        task = asyncio.ensure_future(state.retire())
        moving.add(task)
        task.add_done_callback(moving.discard)

    provider.replaced.add(move)
    obeying = asyncio.ensure_future(_obey_all(socket, state))
    stopping = asyncio.ensure_future(provider.stopping.wait())
    try:
        await out.send("session.created", session=config.as_json())
        await asyncio.wait({obeying, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if obeying.done():
            obeying.result()
        else:
            await _say_goodbye(socket, state)
    except WebSocketDisconnect:
        pass  # the client left while something was sent to it
    finally:
        provider.replaced.discard(move)
        tasks = (obeying, stopping, *moving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await state.close()


async def _obey_all(socket: WebSocket, state: Conversation) -> None:
    """Client events one after another, until the client leaves."""
    while (message := await socket.receive())["type"] != "websocket.disconnect":
        text = message.get("text")
        if text is None:
            await state.out.error(
                RequestError(
                    "binary messages are not part of this protocol",
                    code="unknown_event",
                    remedy="send sound with input_audio_buffer.append",
                )
            )
        else:
            await obey(state, text)


async def _say_goodbye(socket: WebSocket, state: Conversation) -> None:
    error = ending()
    await state.end_response("failed", error=error)
    await state.out.error(error)
    await socket.close(_GOING_AWAY, error.what)
