# SPDX-License-Identifier: Apache-2.0
"""Who comes to the endpoint, and is refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest


def test_handshake__unknown_model_is_refused(shared: Any) -> None:
    """The refusal is an HTTP answer with the reason."""
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    with pytest.raises(InvalidStatus) as caught:
        connect(shared.url.replace("http", "ws") + "/v1/realtime?model=other")

    assert caught.value.response.status_code == 404
    assert "fake-llm" in json.loads(caught.value.response.body)["error"]["message"]


def test_handshake__that_is_none(shared: Any) -> None:
    """An HTTP request to the endpoint is told that it is there, and what it speaks."""
    answer = httpx.get(f"{shared.url}/v1/realtime")

    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert "with a WebSocket client" in answer.json()["error"]["message"]
