# SPDX-License-Identifier: Apache-2.0
"""The server's own turn: it ends at once when told from any thread, and tells the date."""

from __future__ import annotations

import email.utils
import time
from typing import Any

import httpx


def test_server__tells_the_date(own: Any) -> None:
    """As HTTP wants it, and of now: it turns once a second."""
    time.sleep(1.2)
    answer = httpx.get(f"{own.url}/healthz", timeout=20)
    told = email.utils.parsedate_to_datetime(answer.headers["date"]).timestamp()
    assert abs(told - time.time()) < 30
    assert own.server.should_exit is False


def test_server__ends_when_told_by_another_thread(own: Any) -> None:
    """The setter wakes it; a second time, and after the end, it does nothing."""
    own.stop()
    own.stop()
    own.join()
    assert own.server.should_exit is True
    own.stop()
