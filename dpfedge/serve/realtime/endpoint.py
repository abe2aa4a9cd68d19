# SPDX-License-Identifier: Apache-2.0
"""WS /v1/realtime: a WebSocket in, one conversation for as long as it is open.

It neither decodes client events nor makes server events; `commands.py` and `turns.py` do.
"""

from __future__ import annotations

import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from dpfedge.errors import DpfError
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.answer import error_response
from dpfedge.serve.http.models import check_model
from dpfedge.serve.http.speech import voices
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.attend import attend
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
    with contextlib.suppress(WebSocketDisconnect):  # the client left while something was sent to it
        await out.send("session.created", session=config.as_json())
        error = await attend(state, _obey_all(socket, state))
        if error is not None:
            await socket.close(_GOING_AWAY, error.what)


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
