# SPDX-License-Identifier: Apache-2.0
"""`/healthz` (the process answers), `/readyz` (every stage is warm), `/metrics`, `/v1/status`; none awaits a stage."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

from dpfedge.serve.provider import Provider

__all__ = ["healthz", "metrics", "readyz", "status"]


async def healthz(request: Request) -> JSONResponse:
    """200 as long as the event loop turns."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> JSONResponse:
    """200 when a request would be taken now; 503 names the stages that are not warm, or has the health map."""
    provider: Provider = request.app.state.provider
    if provider.ready and provider.ready_ns is not None:
        return JSONResponse({"status": "ready", "waiting": [], "ready_ms": round(provider.ready_ns / 1e6, 1)})
    if provider.warm and provider.instances is not None and not provider.stopping.is_set():
        health = provider.instances.router.health_map()
        return JSONResponse({"status": "unhealthy", "waiting": [], "health": health}, 503, {"retry-after": "1"})
    rows = (await provider.status()).get("stages", {})
    stages = {name: row["state"] for name, row in rows.items()}
    waiting = [name for name, state in stages.items() if state != "ready"]
    body = {"status": "stopping" if provider.stopping.is_set() else "starting", "waiting": waiting, "stages": stages}
    return JSONResponse(body, 503, {"retry-after": "1"})


async def metrics(request: Request) -> PlainTextResponse:
    """Prometheus text."""
    provider: Provider = request.app.state.provider
    status = {**await provider.status(), "routing": _routing(provider)}
    text = request.app.state.metrics.render(status, provider.ready, provider.active)
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def status(request: Request) -> JSONResponse:
    """GET /v1/status: the runtime's own account of its stages, links and memory, as `dpfedge status` shows it, and
    open native sessions by number (null: this server takes none).

    With `?memory=no` it leaves out what the kernel takes milliseconds to add up.
    """
    provider: Provider = request.app.state.provider
    native = request.app.state.native
    own = {"ready": provider.ready, "active": provider.active, "ending": provider.ending}
    memory = request.query_params.get("memory") != "no"
    last = {"last_turn": request.app.state.metrics.last_turn(), "routing": _routing(provider)}
    sessions = None if native is None else native.figures()
    return JSONResponse({**own, **last, "native": sessions, **await provider.status(memory=memory)})


def _routing(provider: Provider) -> dict[str, Any] | None:
    return None if provider.instances is None else provider.instances.figures()
