# SPDX-License-Identifier: Apache-2.0
"""The runtime behind the faces: not there, warming, ready, ending."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dpfedge.errors import BindError, StageError
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


class Session:
    """A session of a toy runtime."""


class Replaceable(Toy):
    """A toy that opens sessions and notes their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.warm.set()
        self.ended: list[object] = []

    async def converse(self, *_: Any, **__: Any) -> Session:
        return Session()

    async def end(self, session: object) -> None:
        self.ended.append(session)


async def serving(toy: Toy) -> Provider:
    async def launch() -> Any:
        return toy

    provider = Provider("file", launch)
    await provider.start()
    return provider


def test_close__of_a_runtime_whose_stages_ended_while_they_started() -> None:
    """A service manager tells every process to end at once: nobody asks for that error, and nothing is said of it."""
    said: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))

        async def launch() -> Any:
            raise StageError("the process ended while it started", stage="llm")

        provider = Provider("file", launch)
        provider.start()
        await asyncio.sleep(0.01)
        await provider.close()
        del provider
        gc.collect()

    asyncio.run(test())
    assert said == []


def test_replace__lets_answers_finish_on_the_old_runtime() -> None:
    """New ones get the new; the old one ends when its last answer does."""

    async def test() -> None:
        old, new = Replaceable(), Replaceable()
        provider = await serving(old)
        told: list[int] = []
        provider.replaced.add(lambda: told.append(1))
        with provider.using() as first:
            provider.replace(new)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            assert provider.runtime is new  # type: ignore[comparison-overlap]
            assert first is old  # type: ignore[comparison-overlap]
            assert (told, provider.ending, provider.replacing, old.closed) == ([1], 1, True, 0)
        await asyncio.sleep(0.01)

        assert (provider.ending, provider.replacing, old.closed, new.closed) == (0, False, 1, 0)
        await provider.close()
        assert (old.closed, new.closed) == (1, 1)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_replace__without_anybody_ends_the_old_runtime_at_once() -> None:
    """Nobody is waited for."""

    async def test() -> None:
        old = Replaceable()
        provider = await serving(old)
        provider.replace(Replaceable())  # type: ignore[arg-type]
        await asyncio.sleep(0.01)

        assert old.closed == 1

    asyncio.run(asyncio.wait_for(test(), 30))


def test_sessions__keep_the_runtime_they_were_opened_in() -> None:
    """They are told to be outdated; ending one twice counts once."""

    async def test() -> None:
        old, new = Replaceable(), Replaceable()
        provider = await serving(old)
        with provider.connected():
            session = await provider.converse()
            assert not provider.outdated(session)
            provider.replace(new)  # type: ignore[arg-type]
            await asyncio.sleep(0)
            assert provider.outdated(session)
            assert (provider.active, provider.ending) == (1, 1)
            await provider.end(session)
            await provider.end(session)
            assert not provider.outdated(await provider.converse())
        await asyncio.sleep(0.01)

        assert old.ended == [session]
        assert old.closed == 1

    asyncio.run(asyncio.wait_for(test(), 30))


def test_close__ends_an_old_runtime_that_is_still_used() -> None:
    """The server waits for nobody then."""

    async def test() -> None:
        old, new = Replaceable(), Replaceable()
        provider = await serving(old)
        await provider.converse()
        provider.replace(new)  # type: ignore[arg-type]
        await provider.close()

        assert (old.closed, new.closed) == (1, 1)

    asyncio.run(asyncio.wait_for(test(), 30))


def test_converse__that_fails_uses_nothing() -> None:
    """The old runtime can end."""

    async def test() -> None:
        old = Replaceable()

        async def refuse(*_: Any, **__: Any) -> Any:
            raise BindError("no place")

        old.converse = refuse  # type: ignore[method-assign]
        provider = await serving(old)
        with pytest.raises(BindError):
            await provider.converse()
        provider.replace(Replaceable())  # type: ignore[arg-type]
        await asyncio.sleep(0.01)

        assert old.closed == 1

    asyncio.run(asyncio.wait_for(test(), 30))
