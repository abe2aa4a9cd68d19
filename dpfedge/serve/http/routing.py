# SPDX-License-Identifier: Apache-2.0
"""`/v1/health-map`: every instance, its health and weights; it judges nothing.

They are this server's devices, or, of a server that looks at none, those of the table that the host's router publishes.
Beside them, who has an accelerator of this host open: what a device is busy with when it is not with us.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dpfedge.errors import RouteError, Unavailable
from dpfedge.routing.fingerprint import HEADER
from dpfedge.routing.kernel.users import DeviceUsers
from dpfedge.routing.publication import Published
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.answer import error_response

__all__ = ["health_map"]


async def health_map(request: Request) -> Response:
    """GET: this server's instances, or those of the host's table; users of devices; 404 where nobody routes.

    With the hardware fingerprint, as header and in the body, where the server makes one.
    """
    instances, prints = request.app.state.provider.instances, request.app.state.fingerprints
    try:
        body = _published() if instances is None else instances.figures()
    except Unavailable as error:
        return error_response(RequestError(error.what, status=404, code="no_routing_table", remedy="start a router"))
    except RouteError as error:
        return error_response(error)
    latest = None if prints is None else prints.latest
    body |= {"fingerprint": None if latest is None else latest.sent()}
    body |= {"devices": await run_in_threadpool(_users)}
    return JSONResponse(body, headers={} if latest is None else {HEADER: latest.header})


def _published() -> dict[str, object]:
    table = Published.open()
    instances = table.health_map()
    healthy = sum(bool(row["healthy"]) for row in instances.values())
    shape = {"bits": table.bits, "digest": f"{table.digest():016x}"}
    return {"generation": table.generation, "healthy": healthy, "table": shape, "instances": instances}


def _users() -> dict[str, object]:
    with DeviceUsers(kernel=False) as users:
        return users.figures()
