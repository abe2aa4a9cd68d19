# SPDX-License-Identifier: Apache-2.0
"""POST /v1/control/{warm,switch,drop}: an installed package's id in, the server served with it, or why it cannot be.

Only over the server's Unix socket, whose file lets its user in and nobody else; `dpfedge install --activate` asks.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dpfedge.errors import DpfError
from dpfedge.serve.errors import RequestError, error_body, error_status
from dpfedge.serve.http.answer import gone, while_wanted
from dpfedge.serve.http.body import read_json
from dpfedge.serve.http.fields import read_fields, text
from dpfedge.serve.switcher import Switcher

__all__ = ["control"]

_HEARD_S = 0.02
"""In which a server that stood still hears that who asked it has left."""


async def control(request: Request) -> Response:
    """The endpoint; a refusal carries the exit code that `dpfedge serve` would have ended with."""
    try:
        await _do(request)
    except DpfError as error:
        body = error_body(error)["error"] | {"exit_code": error.exit_code}
        return JSONResponse({"error": body}, error_status(error))
    return JSONResponse({"done": True})


async def _do(request: Request) -> None:
    switcher: Switcher = request.app.state.switcher
    what = request.path_params["what"]
    server = request.scope.get("server")
    over_tcp = server is not None and server[1] is not None
    if over_tcp or what not in ("warm", "switch", "drop"):
        raise RequestError("no such endpoint", status=404, where=f"POST {request.url.path}"[:200], code="http_404")
    id = read_fields(await read_json(request), {"id": text(64, 64)}, required=("id",))["id"]
    if what == "drop":
        await switcher.drop(id)
        return
    # an install that was killed wants no spare; one that gave up waiting has put the slots back
    work = switcher.warm(id) if what == "warm" else _switch(switcher, id)
    await while_wanted(request.app.state.provider, work, lambda: gone(request.receive))


async def _switch(switcher: Switcher, id: str) -> None:
    await asyncio.sleep(_HEARD_S)
    switcher.switch(id)
