# SPDX-License-Identifier: Apache-2.0
"""Warming another package beside the one that is served, and switching to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dpfedge.errors import BindError, Busy, StageError, UsageError
from dpfedge.serve import switcher as module
from dpfedge.serve.provider import Provider
from dpfedge.serve.switcher import Switcher

A, B, OLD = "a" * 64, "b" * 64, "0" * 64


class Toy:
    """A runtime."""

    name, ready = "toy", True

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal, self.closed, self.warm = refusal, 0, asyncio.Event()
        self.warm.set()

    async def wait_ready(self) -> None:
        await self.warm.wait()
        if self.refusal:
            raise self.refusal

    async def close(self) -> None:
        self.closed += 1


class Scene:
    """A provider that serves `old`; the packages that can be launched."""

    def __init__(self) -> None:
        self.old = Toy()
        self.packages: dict[str, Toy] = {}
        self.provider = Provider("toy", self._old)
        self.switcher = Switcher(self.provider, self._launch, OLD)

    async def _old(self) -> Any:
        return self.old

    async def _launch(self, id: str) -> Any:
        if id not in self.packages:
            raise BindError("no target fits")
        return self.packages[id]

    @property
    def served(self) -> Any:
        return self.provider.runtime


def run(test: Callable[[Scene], Awaitable[None]]) -> None:
    async def main() -> None:
        scene = Scene()
        scene.packages = {A: Toy(), B: Toy()}
        await scene.provider.start()
        await asyncio.wait_for(test(scene), 30)
        await scene.switcher.close()
        await scene.provider.close()

    asyncio.run(main())


def test_switch__after_the_spare_is_warm() -> None:
    """Warming twice is warming once; the old runtime ends."""

    async def test(scene: Scene) -> None:
        await scene.switcher.warm(A)
        await scene.switcher.warm(A)
        assert scene.served is scene.old
        scene.switcher.switch(A)
        assert scene.served is scene.packages[A]
        await asyncio.sleep(0.01)
        assert scene.old.closed == 1

    run(test)


def test_switch__to_what_is_served_does_nothing() -> None:
    """As when an install finds its package active, and asks only to be sure."""

    async def test(scene: Scene) -> None:
        await scene.switcher.warm(OLD)
        scene.switcher.switch(OLD)
        assert scene.served is scene.old
        await scene.switcher.warm(A)
        scene.switcher.switch(A)
        await scene.switcher.warm(A)
        scene.switcher.switch(A)
        assert (scene.served, scene.packages[A].closed) == (scene.packages[A], 0)

    run(test)


def test_warm__that_fails_leaves_everything_as_it_was() -> None:
    """A package that does not bind, and one that does not become warm: its runtime is closed."""

    async def test(scene: Scene) -> None:
        with pytest.raises(BindError, match="no target fits"):
            await scene.switcher.warm("c" * 64)
        scene.packages[A].refusal = StageError("it died", stage="llm")
        with pytest.raises(StageError, match="it died"):
            await scene.switcher.warm(A)
        assert scene.packages[A].closed == 1
        with pytest.raises(UsageError, match="this package is not warm; found none; warm it first"):
            scene.switcher.switch(A)
        assert scene.served is scene.old
        await scene.switcher.warm(B)

    run(test)


def test_warm__one_at_a_time() -> None:
    """Not two spares, and none while the old package is still used."""

    async def test(scene: Scene) -> None:
        await scene.switcher.warm(A)
        with pytest.raises(Busy, match="another switch is in progress"):
            await scene.switcher.warm(B)
        with pytest.raises(UsageError, match=f"not warm; found {A}"):
            scene.switcher.switch(B)
        with scene.provider.using():
            scene.switcher.switch(A)
            with pytest.raises(Busy, match="found 1 answers and sessions on the old package"):
                await scene.switcher.warm(B)

    run(test)


def test_warm__that_nobody_wants_any_more_is_cancelled() -> None:
    """Who asked was killed; what was started is ended."""

    async def test(scene: Scene) -> None:
        scene.packages[A].warm.clear()
        task = asyncio.ensure_future(scene.switcher.warm(A))
        await asyncio.sleep(0.01)
        with pytest.raises(Busy):
            await scene.switcher.warm(B)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert scene.packages[A].closed == 1
        await scene.switcher.warm(B)

    run(test)


def test_spare__is_dropped_when_told_or_when_nobody_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another package: not."""

    async def test(scene: Scene) -> None:
        await scene.switcher.warm(A)
        await scene.switcher.drop(B)
        assert scene.packages[A].closed == 0
        await scene.switcher.drop(A)
        await scene.switcher.drop(A)
        assert scene.packages[A].closed == 1
        monkeypatch.setattr(module, "SPARE_S", 0.01)
        await scene.switcher.warm(B)
        while not scene.packages[B].closed:
            await asyncio.sleep(0.01)
        with pytest.raises(UsageError):
            scene.switcher.switch(B)

    run(test)
