# SPDX-License-Identifier: Apache-2.0
"""A runtime's provider in, an ASGI app out: the routes, and what an error looks like.

It opens no socket and starts no runtime.
"""

from __future__ import annotations

import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpfedge.errors import DpfError
from dpfedge.serve.errors import RequestError
from dpfedge.serve.guard import Guard
from dpfedge.serve.http.answer import error_response
from dpfedge.serve.http.chat import chat_completions
from dpfedge.serve.http.control import control
from dpfedge.serve.http.health import healthz, metrics, readyz, status
from dpfedge.serve.http.models import get_model, list_models
from dpfedge.serve.http.routing import health_map
from dpfedge.serve.http.speech import speech
from dpfedge.serve.http.transcriptions import transcriptions
from dpfedge.serve.metrics import Metrics
from dpfedge.serve.noting import noted
from dpfedge.serve.provider import Provider
from dpfedge.serve.realtime.endpoint import realtime
from dpfedge.serve.switcher import Switcher

__all__ = ["create_app"]

_ROUTES = (
    Route("/healthz", healthz),
    Route("/readyz", readyz),
    Route("/metrics", metrics),
    Route("/v1/status", status),
    Route("/v1/health-map", health_map),
    Route("/v1/models", list_models),
    Route("/v1/models/{model:path}", get_model),
    Route("/v1/chat/completions", chat_completions, methods=["POST"]),
    Route("/v1/audio/transcriptions", transcriptions, methods=["POST"]),
    Route("/v1/audio/speech", speech, methods=["POST"]),
    WebSocketRoute("/v1/realtime", realtime),
)
_CONTROL = Route("/v1/control/{what}", control, methods=["POST"])
"""Over TCP it answers as if it were not there."""


def create_app(provider: Provider, switcher: Switcher | None = None) -> Starlette:
    """The app that serves `provider`'s runtime, and lets `switcher` replace it over a Unix socket.

    `app.state` has all of them, the metrics, and, None at first, `fingerprints`: who makes the hardware fingerprint,
    and `native`: the native face.
    """
    app = Starlette(
        routes=_ROUTES if switcher is None else (*_ROUTES, _CONTROL),
        middleware=[Middleware(Guard), Middleware(_Counter)],
        exception_handlers={DpfError: _dpf_error, HTTPException: _http_error, Exception: _bug},
    )
    app.state.provider, app.state.switcher, app.state.metrics = provider, switcher, Metrics()
    app.state.fingerprints = app.state.native = None
    return app


async def _dpf_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, DpfError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    """404 and 405 of the router."""
    assert isinstance(error, HTTPException)
    if any(isinstance(route, WebSocketRoute) and route.path == request.url.path for route in _ROUTES):
        return _upgrade_required(request.url.path)
    allowed = error.headers and error.headers.get("Allow")
    paths = ", ".join(route.path.replace(":path}", "}") for route in _ROUTES)
    answer = error_response(
        RequestError(
            "no such endpoint" if error.status_code == 404 else error.detail.lower(),
            status=error.status_code,
            where=f"{request.method} {request.url.path}"[:200],
            allowed=allowed or paths,
            code=f"http_{error.status_code}",
        )
    )
    answer.headers.update(error.headers or {})
    return answer


def _upgrade_required(path: str) -> Response:
    """An endpoint that is there, but not for this protocol."""
    remedy = "connect to it with a WebSocket client: ws://, not http://"
    error = RequestError(
        "a WebSocket, not an HTTP endpoint", status=426, where=path, remedy=remedy, code="upgrade_required"
    )
    answer = error_response(error)
    answer.headers["upgrade"] = "websocket"
    return answer


async def _bug(request: Request, error: Exception) -> Response:
    """An error nobody raised on purpose; its traceback goes to the log."""
    what = f"internal error: {type(error).__name__}"
    return error_response(DpfError(what, where="server", remedy="see the server's log"))


class _Counter:
    """Counts requests by endpoint and status, and adds the headers that were noted for an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.monotonic(), 499

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *noted(scope)]
            await send(message)

        try:
            await self._app(scope, receive, counting)
        finally:
            path = next((route.path for route in _ROUTES if route.path == scope["path"]), "other")
            known: Metrics = scope["app"].state.metrics
            known.count("http_requests_total", path=path, status=str(status))
            known.observe("http_request_seconds", time.monotonic() - started, path=path)
