# SPDX-License-Identifier: Apache-2.0
"""Headers that an answer gets beside its own: noted while its request is served, added when the answer begins.

Nothing here decides; what is noted after the answer began is lost.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.requests import Request

__all__ = ["DEMOTED", "INSTANCE", "PRIORITY", "note", "noted"]

INSTANCE = "dpf-instance"
"""The instance that serves the request."""
PRIORITY = "priority"
"""RFC 9218: the urgency that the server gave the request, where it is another one than was asked for."""
DEMOTED = "dpf-demoted"
"""Why it did."""

_KEY = "dpfedge.noted"


def note(request: Request, name: str, value: str) -> None:
    """Add this header to the request's answer."""
    request.scope.setdefault(_KEY, {})[name] = value


def noted(scope: MutableMapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """What was noted for the request of an ASGI scope."""
    found: dict[str, str] = scope.get(_KEY, {})
    return [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in found.items()]
