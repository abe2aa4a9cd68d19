# SPDX-License-Identifier: Apache-2.0
"""The runtime behind the faces: not there, warming, ready, ending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dpfedge.errors import BindError
from dpfedge.serve.errors import NotReady, Stopping
from dpfedge.serve.provider import Provider


class Toy:
    """A runtime that is warm when it is told so."""

    name = "toy"

    def __init__(self) -> None:
        self.warm, self.ready, self.closed = asyncio.Event(), True, 0

    async def wait_ready(self) -> None:
        await self.warm.wait()

    def status(self) -> dict[str, Any]:
        return {"stages": {"decoder": {"state": "ready"}, "llm": {"state": "starting"}}}

    async def close(self) -> None:
        self.closed += 1


def run(test: Callable[[Toy, Provider], Awaitable[None]]) -> None:
    async def main() -> None:
        toy = Toy()

        async def launch() -> Any:
            return toy

        await asyncio.wait_for(test(toy, Provider("file", launch)), 30)

    asyncio.run(main())


def test_start__is_ready_when_every_stage_is_warm() -> None:
    """Before that the stage that is late is named; the name is the file's until the package is open."""

    async def test(toy: Toy, provider: Provider) -> None:
        with pytest.raises(NotReady, match="not ready: starting"):
            _ = provider.runtime
        assert provider.name == "file"
        opening = provider.start()
        await asyncio.sleep(0)
        with pytest.raises(NotReady) as caught:
            _ = provider.runtime
        assert caught.value.stage == "llm"
        assert not provider.ready
        toy.warm.set()
        await opening

        assert provider.ready
        assert provider.name == "toy"
        assert provider.runtime is toy  # type: ignore[comparison-overlap]
        assert provider.ready_ns is not None

    run(test)


def test_start__tells_what_prevents_it() -> None:
    """The task ends with the launcher's error."""

    async def test(toy: Toy, provider: Provider) -> None:
        async def refuse() -> Any:
            raise BindError("no target")

        with pytest.raises(BindError):
            await Provider("file", refuse).start()

    run(test)


def test_using__is_counted_whatever_happens() -> None:
    """An answer that fails is no answer in flight."""

    async def test(toy: Toy, provider: Provider) -> None:
        toy.warm.set()
        await provider.start()
        seen = []

        def answer() -> None:
            with provider.using():
                seen.append(provider.active)
                raise BindError("it broke")

        with pytest.raises(BindError):
            answer()
        assert (seen, provider.active) == ([1], 0)

    run(test)


def test_stop__waits_for_answers_and_then_cuts_them() -> None:
    """No new work meanwhile; without answers there is nothing to wait for."""

    async def test(toy: Toy, provider: Provider) -> None:
        toy.warm.set()
        await provider.start()
        with provider.using():
            stopping = asyncio.ensure_future(provider.stop(0.1))
            await asyncio.sleep(0)
            assert not provider.cut.is_set()
            assert not provider.ready
            with pytest.raises(Stopping):
                _ = provider.runtime
            await stopping
            assert provider.cut.is_set()
        assert await provider.status() == {}
        await provider.stop(1000)

    run(test)


def test_close__ends_a_runtime_that_is_still_opening() -> None:
    """Its task does not go on."""

    async def test(toy: Toy, provider: Provider) -> None:
        opening = provider.start()
        await asyncio.sleep(0)
        await provider.close()

        assert opening.cancelled()
        assert toy.closed == 1

    run(test)
