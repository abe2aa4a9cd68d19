# SPDX-License-Identifier: Apache-2.0
"""The loop in its thread; what a runtime does with it is tested in test_synchronous.py."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import CancelledError

import pytest

from dpfedge.runtime.loop import LoopThread


async def _three() -> int:
    return 3


def test_submit__runs_on_the_loop() -> None:
    """A coroutine, and any other awaitable."""
    thread = LoopThread()

    async def where() -> bool:
        return thread.is_current()

    assert thread.submit(_three()).result(10) == 3
    assert thread.submit(where()).result(10) is True
    assert not thread.is_current()
    thread.stop()


def test_stop__cancels_what_waits() -> None:
    """Whoever waits is told."""
    thread = LoopThread()
    waiting = thread.submit(asyncio.sleep(3600))

    thread.stop()

    with pytest.raises(CancelledError):
        waiting.result(10)
    assert thread.loop.is_closed()


def test_runtime__is_imported_without_it() -> None:
    """The stages' parent is started before asyncio is imported."""
    code = "import sys; from dpfedge import Runtime; sys.exit(' '.join({'asyncio', 'numpy'} & set(sys.modules)) or 0)"

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).stderr == b""
