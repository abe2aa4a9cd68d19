# SPDX-License-Identifier: Apache-2.0
"""Headers that are noted for an answer."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from dpfedge.serve.noting import note, noted


def test_noted__for_this_request_only() -> None:
    """The last value of a name; what no header can hold is replaced."""
    scope: dict[str, Any] = {"type": "http", "headers": []}
    assert noted(scope) == []
    note(Request(scope), "dpf-instance", "a")
    note(Request(scope), "dpf-instance", "gpu-é-用")
    assert noted(scope) == [(b"dpf-instance", "gpu-é-?".encode("latin-1"))]
    assert noted({"type": "http"}) == []
