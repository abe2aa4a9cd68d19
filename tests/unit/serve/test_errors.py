# SPDX-License-Identifier: Apache-2.0
"""Errors become status, headers and OpenAI's one JSON shape."""

from __future__ import annotations

import pytest

from dpfedge.errors import BackendError, Busy, ContextLengthError, DpfError, InputError, StageDied, WouldBlock
from dpfedge.serve.errors import ClientGone, NotReady, RequestError, Stopping, error_body, error_headers, error_status


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (RequestError("no"), 400, "invalid_request_error", "request_error"),
        (RequestError("no", status=413, code="body_too_large"), 413, "invalid_request_error", "body_too_large"),
        (InputError("not audio", stage="decoder"), 400, "invalid_request_error", "input_error"),
        (ContextLengthError("long", stage="llm"), 400, "invalid_request_error", "context_length_exceeded"),
        (Busy("full"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (WouldBlock("full"), 429, "rate_limit_error", "rate_limit_exceeded"),
        (StageDied("died", stage="llm"), 503, "server_error", "stage_died"),
        (NotReady("warming", stage="llm"), 503, "server_error", "not_ready"),
        (Stopping("ends"), 503, "server_error", "stopping"),
        (ClientGone("gone"), 499, "invalid_request_error", "client_gone"),
        (BackendError("broke"), 500, "server_error", "backend_error"),
    ],
)
def test_error__has_status_type_and_code(error: DpfError, status: int, kind: str, code: str) -> None:
    """From the error's own fields; the text is the error's text."""
    body = error_body(error)["error"]

    assert error_status(error) == status
    assert (body["type"], body["code"], body["message"]) == (kind, code, str(error))


def test_body__names_stage_and_parameter_where_there_is_one() -> None:
    """A prompt that is too long is the messages' fault."""
    assert error_body(StageDied("died", stage="llm"))["error"]["stage"] == "llm"
    assert "stage" not in error_body(Busy("full"))["error"]
    assert error_body(RequestError("no", param="speed"))["error"]["param"] == "speed"
    assert error_body(ContextLengthError("long", stage="llm"))["error"]["param"] == "messages"
    assert error_body(Busy("full"))["error"]["param"] is None


def test_headers__say_when_to_try_again() -> None:
    """Only where that can help."""
    assert error_headers(Busy("full", retry_after_s=3)) == {"retry-after": "3"}
    assert error_headers(StageDied("died", stage="llm")) == {"retry-after": "1"}
    assert error_headers(RequestError("no")) == {}
