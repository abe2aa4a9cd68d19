# SPDX-License-Identifier: Apache-2.0
"""A deadline kept by the request's owner."""

from __future__ import annotations

import asyncio
import time

from dpfedge.errors import DeadlineExceeded
from dpfedge.pipeline.deadline import Deadline


def test_deadline__passes_when_nobody_says_so() -> None:
    """With a grace for the stages, which know more."""

    async def test() -> tuple[float, DeadlineExceeded]:
        failed: asyncio.Future[DeadlineExceeded] = asyncio.get_running_loop().create_future()
        before = time.monotonic_ns()
        one = Deadline(0.01, failed.set_result)
        assert 0 < one.at_ns - before < 1_000_000_000
        error = await failed
        return (time.monotonic_ns() - one.at_ns) / 1e9, error

    late_s, error = asyncio.run(test())
    assert late_s > 0.05
    assert "no word from a stage" in str(error)


def test_deadline__that_is_met_or_none() -> None:
    """Nobody is told."""

    async def test() -> None:
        told: list[DeadlineExceeded] = []
        Deadline(0.0, told.append).stop()
        none = Deadline(None, told.append)
        await asyncio.sleep(0.15)
        none.stop()
        assert (told, none.at_ns) == ([], 0)

    asyncio.run(test())
