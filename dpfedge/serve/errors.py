# SPDX-License-Identifier: Apache-2.0
"""Errors of the faces, and any dpfedge error as status, headers and OpenAI's one JSON shape.

It never parses an error's text: everything comes from the error's fields.
"""

from __future__ import annotations

import re
from typing import Any

from dpfedge.errors import Busy, ContextLengthError, DpfError, NoInstance, StageDied, StageError, UsageError, WouldBlock

__all__ = ["ClientGone", "NotReady", "RequestError", "Stopping", "error_body", "error_headers", "error_status"]

_CODES = {ContextLengthError: "context_length_exceeded", Busy: "rate_limit_exceeded", WouldBlock: "rate_limit_exceeded"}
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


class RequestError(UsageError):
    """A request that this server will never accept as it stands; `param` names the field."""

    def __init__(
        self, what: str, *, status: int = 400, param: str | None = None, code: str | None = None, **parts: Any
    ) -> None:
        self.http_status, self.param, self.code = status, param, code
        super().__init__(what, **parts)


class NotReady(StageError):
    """A stage is still warming up, or coming back after a failure."""

    http_status = 503


class Stopping(DpfError):
    """The server was told to end."""

    http_status = 503


class ClientGone(DpfError):
    """The client closed its connection; nobody reads an answer."""

    http_status = 499


def error_status(error: DpfError) -> int:
    """The HTTP status of `error`."""
    return error.http_status


def error_headers(error: DpfError) -> dict[str, str]:
    """`Retry-After` where trying again can help."""
    if isinstance(error, Busy):
        return {"retry-after": str(error.retry_after_s)}
    if isinstance(error, (WouldBlock, NotReady, StageDied, NoInstance)):
        return {"retry-after": "1"}
    return {}


def error_body(error: DpfError) -> dict[str, Any]:
    """`{"error": {message, type, param, code}}`; `stage` names who is to blame, `health` says why nobody can."""
    fields: dict[str, Any] = {
        "message": str(error),
        "type": _type(error.http_status),
        "param": getattr(error, "param", None) or _default_param(error),
        "code": getattr(error, "code", None) or _code(error),
    }
    if isinstance(error, NoInstance):
        fields["health"] = error.health
    stage = getattr(error, "stage", None)
    return {"error": {**fields, "stage": stage} if stage else fields}


def _type(status: int) -> str:
    if status == 429:
        return "rate_limit_error"
    return "invalid_request_error" if 400 <= status < 500 else "server_error"


def _default_param(error: DpfError) -> str | None:
    return "messages" if isinstance(error, ContextLengthError) else None


def _code(error: DpfError) -> str:
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return _CAMEL.sub("_", type(error).__name__).lower()
