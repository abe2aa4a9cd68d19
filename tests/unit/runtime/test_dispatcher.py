# SPDX-License-Identifier: Apache-2.0
"""From the supervisor's thread to the requests, on their loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from dpfedge.runtime.dispatcher import Dispatcher


class Waits:
    """One request's end; it notes what it is told and where."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []

    def stage_died(self, stage: str, error: Any) -> None:
        self.told.append((stage, error.stage, threading.get_ident()))

    def fail(self, error: Any) -> None:
        raise AssertionError


def test_death__is_told_to_every_request_on_the_loop() -> None:
    """Whatever thread the supervisor runs in."""

    async def test() -> list[Waits]:
        one, requests = Dispatcher(asyncio.get_running_loop()), [Waits(), Waits()]
        one.open.update(enumerate(requests))
        thread = threading.Thread(target=one.stage_died, args=("llm",))
        thread.start()
        thread.join()
        await asyncio.sleep(0)
        return requests

    here = threading.get_ident()
    assert [request.told for request in asyncio.run(test())] == [[("llm", "llm", here)]] * 2


def test_death__after_the_loop_was_closed() -> None:
    """Every request went with it."""
    loop = asyncio.new_event_loop()
    loop.close()

    Dispatcher(loop).stage_died("llm")
    Dispatcher(loop).stage_ready("llm")
