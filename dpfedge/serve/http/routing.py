# SPDX-License-Identifier: Apache-2.0
"""`/v1/health-map`: every instance of this host's router, its health and weights, as published; it judges nothing.

Beside them, who has an accelerator of this host open: what a device is busy with when it is not with us.
"""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from dpfedge.errors import RouteError, Unavailable
from dpfedge.routing.kernel.users import DeviceUsers
from dpfedge.routing.publication import Published
from dpfedge.serve.errors import RequestError
from dpfedge.serve.http.answer import error_response

__all__ = ["health_map"]


async def health_map(request: Request) -> Response:
    """GET: generation, table and instances of the published table, users of devices; 404 where nobody routes."""
    try:
        table = Published.open()
    except Unavailable as error:
        return error_response(RequestError(error.what, status=404, code="no_routing_table", remedy="start a router"))
    except RouteError as error:
        return error_response(error)
    instances = table.health_map()
    healthy = sum(bool(row["healthy"]) for row in instances.values())
    shape = {"bits": table.bits, "digest": f"{table.digest():016x}"}
    body = {"generation": table.generation, "healthy": healthy, "table": shape, "instances": instances}
    return JSONResponse(body | {"devices": await run_in_threadpool(_users)})


def _users() -> dict[str, object]:
    with DeviceUsers(kernel=False) as users:
        return users.figures()
