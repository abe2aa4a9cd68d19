# SPDX-License-Identifier: Apache-2.0
"""Server events leave with ids of their own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dpfedge.errors import StageDied
from dpfedge.serve.realtime.outbox import Outbox, new_id


def test_events__have_type_and_id() -> None:
    """No two ids are the same; an error names the event that caused it and the stage to blame."""
    written: list[dict[str, Any]] = []

    async def write(text: str) -> None:
        written.append(json.loads(text))

    async def test() -> None:
        out = Outbox(write)
        await out.send("a", x="ü")
        await out.error(StageDied("died", stage="llm"), "event_of_the_client")

    asyncio.run(test())
    first, second = written
    assert (first["type"], first["x"]) == ("a", "ü")
    assert first["event_id"] != second["event_id"]
    assert second["type"] == "error"
    assert (second["error"]["stage"], second["error"]["event_id"]) == ("llm", "event_of_the_client")


def test_id__shows_its_kind() -> None:
    """As OpenAI writes them."""
    assert new_id("resp").startswith("resp_")
    assert len({new_id("item") for _ in range(100)}) == 100
