# SPDX-License-Identifier: Apache-2.0
"""A blocking start beside the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dpfedge.errors import StageError
from dpfedge.runtime.starting import started


class Thing:
    """Notes its end."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True


def test_start__gives_what_was_started() -> None:
    """In another thread."""
    here = threading.get_ident()
    threads: list[int] = []

    def start() -> Thing:
        threads.append(threading.get_ident())
        return Thing()

    assert not asyncio.run(started(start)).stopped
    assert threads != [here]


def test_start__that_fails() -> None:
    """With its own error."""

    def start() -> Thing:
        raise StageError("no")

    with pytest.raises(StageError, match="no"):
        asyncio.run(started(start))


@pytest.mark.parametrize("fails", [False, True])
def test_start__that_nobody_waits_for(fails: bool) -> None:
    """It is ended, and the cancel waits for that: no process is left behind."""
    thing, go = Thing(), threading.Event()

    def start() -> Thing:
        go.wait(10)
        if fails:
            raise StageError("no")
        return thing

    async def test() -> None:
        task = asyncio.create_task(started(start))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(test())
    assert thing.stopped is not fails
