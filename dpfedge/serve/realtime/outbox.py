# SPDX-License-Identifier: Apache-2.0
"""Server events of a realtime connection out, each with an id; it decides nothing.

The native face has an outbox of its own with the same methods; what it is given are the same events.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from dpfedge.errors import DpfError
from dpfedge.serve.errors import error_body
from dpfedge.serve.jsontext import json_bytes
from dpfedge.serve.media.resample import Samples

__all__ = ["Outbox", "new_id"]


def new_id(kind: str) -> str:
    """An id as OpenAI writes them: `item_…`, `resp_…`, `event_…`."""
    return f"{kind}_{uuid.uuid4().hex[:24]}"


class Outbox:
    """Writes events to one client."""

    def __init__(self, write: Callable[[str], Awaitable[None]]) -> None:
        self._write = write

    async def send(self, kind: str, **fields: Any) -> None:
        """One event; waits while the client's connection is full."""
        event = {"type": kind, "event_id": new_id("event"), **fields}
        await self._write(json_bytes(event).decode())

    async def sound(self, samples: Samples, rate: int, **place: Any) -> None:
        """Samples of the answer, i16[n] at `rate` Hz; `place` says of which."""
        delta = base64.b64encode(samples.astype("<i2", copy=False).tobytes()).decode()
        await self.send("response.output_audio.delta", **place, delta=delta)

    async def error(self, error: DpfError, event_id: str | None = None) -> None:
        """An `error` event; `event_id` is the client event that caused it."""
        await self.send("error", error={**error_body(error)["error"], "event_id": event_id})
