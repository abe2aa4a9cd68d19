# SPDX-License-Identifier: Apache-2.0
"""A request's JSON body in, a map out; the size is bounded while it arrives.

It checks no field.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from dpfedge.limits import JSON_BODY_MAX_BYTES
from dpfedge.serve.errors import ClientGone, RequestError

__all__ = ["declared_length", "read_json", "too_large"]


def too_large(found: int | str, allowed: int) -> RequestError:
    """The error for a body over its limit."""
    return RequestError(
        "the body is too large",
        where="request",
        status=413,
        found=f"{found} bytes",
        allowed=f"{allowed} bytes",
        remedy="split it into several requests",
        code="body_too_large",
    )


def declared_length(headers: Any) -> int | None:
    """`Content-Length`, or None for a chunked body."""
    value = headers.get("content-length", "")
    return int(value) if value.isdigit() else None


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object; 413 when it is larger than a JSON body may be, 400 when it is anything else."""
    declared = declared_length(request.headers)
    if declared is not None and declared > JSON_BODY_MAX_BYTES:
        raise too_large(declared, JSON_BODY_MAX_BYTES)
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > JSON_BODY_MAX_BYTES:
                raise too_large(f"more than {JSON_BODY_MAX_BYTES}", JSON_BODY_MAX_BYTES)
    except ClientDisconnect as gone:
        raise ClientGone("the client left while it sent the body", where="request") from gone
    return parse_object(bytes(body))


def parse_object(body: bytes | str) -> dict[str, Any]:
    """`body` as a JSON object."""
    if not body:
        raise RequestError("the body is empty", where="request", allowed="a JSON object", code="invalid_json")
    try:
        data = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise RequestError(
            f"the body is not JSON: {reason}", where="request", allowed="a JSON object", code="invalid_json"
        ) from error
    if not isinstance(data, dict):
        raise RequestError(
            "the body is not a JSON object",
            where="request",
            found=type(data).__name__,
            allowed="a JSON object",
            code="invalid_json",
        )
    return data


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
