# SPDX-License-Identifier: Apache-2.0
"""From the supervisor's thread to the requests, on their loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from dpfedge.pipeline.observer import Observer
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


def test_death__says_what_the_code_raised() -> None:
    """Once; the next death may have another reason."""

    async def test() -> list[Any]:
        found: list[Any] = []

        class Notes(Waits):
            def stage_died(self, stage: str, error: Any) -> None:
                found.append(error.found)

        one = Dispatcher(asyncio.get_running_loop())
        one.open[1] = Notes()
        one.happened("llm", {"what": "raised", "found": "KeyError: 'a' (stages.py, line 7)"})
        for _ in range(2):
            one.stage_died("llm")
            await asyncio.sleep(0)
        return found

    assert asyncio.run(test()) == ["KeyError: 'a' (stages.py, line 7)", None]


def test_death__after_the_loop_was_closed() -> None:
    """Every request went with it."""
    loop = asyncio.new_event_loop()
    loop.close()

    Dispatcher(loop).stage_died("llm")
    Dispatcher(loop).stage_ready("llm")
    Dispatcher(loop).post(lambda: pytest.fail("nothing runs any more"))


def test_resting__of_requests_that_say_so() -> None:
    """One that cannot rest, or that nobody knows, does not."""

    class Talks(Waits):
        def resting(self, stage: str) -> bool:
            return stage == "llm"

    loop = asyncio.new_event_loop()
    loop.close()
    one = Dispatcher(loop)
    one.open = {1: Talks(), 2: Waits()}

    assert one.resting([], "llm")
    assert one.resting([1], "llm")
    assert not one.resting([1], "voice")
    assert not one.resting([1, 2], "llm")
    assert not one.resting([1, 3], "llm")


def test_post__runs_on_the_loop_and_tells_the_observer() -> None:
    """From any thread; without an observer nobody is told."""
    told: list[Any] = []

    class Notes(Observer):
        def happened(self, stage: str, event: Any) -> None:
            told.append((stage, event, threading.get_ident()))

    async def test() -> None:
        one = Dispatcher(asyncio.get_running_loop())
        one.happened("llm", {"what": "nobody hears this"})
        one.observer = Notes()
        thread = threading.Thread(target=one.post, args=(lambda: one.happened("llm", {"what": "replaced"}),))
        thread.start()
        thread.join()
        await asyncio.sleep(0)

    asyncio.run(test())
    assert told == [("llm", {"what": "replaced"}, threading.get_ident())]
