# SPDX-License-Identifier: Apache-2.0
"""Another package beside the one that is served: warmed as a spare, then switched to, or dropped.

One spare at a time, and none while a runtime that was replaced still has users: memory holds two packages at most. A
spare that nobody switches to is dropped after a while: who asked for it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dpfedge.errors import Busy, DpfError, UsageError
from dpfedge.serve.provider import Provider

if TYPE_CHECKING:
    from dpfedge.serve.api import ServedRuntime

__all__ = ["SPARE_S", "Switcher"]

SPARE_S = 60.0
"""How long a warm spare waits for `switch`; the store's slots are written meanwhile."""


class Switcher:
    """`launch` opens the runtime of an installed package by its id; `served` is the id of the provider's package."""

    def __init__(self, provider: Provider, launch: Callable[[str], Awaitable[ServedRuntime]], served: str) -> None:
        self._provider, self._launch, self._served = provider, launch, served
        self._warming = asyncio.Lock()
        self._spare: tuple[str, ServedRuntime] | None = None
        self._expiry: asyncio.Task[None] | None = None

    async def warm(self, id: str) -> None:
        """Make the package the spare; returns when every stage is warm. The error that prevents it leaves no spare.

        The package that is served is warm.
        Busy while another package is being switched to.
        """
        _ = self._provider.runtime  # a server that is starting or ending has nothing to stand beside
        if id == self._served:
            return
        if self._warming.locked() or self._provider.replacing or (self._spare is not None and self._spare[0] != id):
            users = f"{self._provider.ending} answers and sessions on the old package"
            raise Busy("another switch is in progress", where="server", found=users, remedy="try again in a moment")
        async with self._warming:
            if self._spare is None:
                runtime = await self._launch(id)
                try:
                    await runtime.wait_ready()
                except BaseException:
                    await runtime.close()
                    raise
                self._spare = (id, runtime)
            self._expire()

    def switch(self, id: str) -> None:
        """Give every new answer to the spare; UsageError when neither it nor what is served is this package."""
        if id == self._served:
            return
        if self._spare is None or self._spare[0] != id:
            found = self._spare[0] if self._spare is not None else "none"
            raise UsageError("this package is not warm", where="server", found=found, remedy="warm it first")
        (_, runtime), self._spare = self._spare, None
        self._cancel_expiry()
        self._provider.replace(runtime)
        self._served = id

    async def drop(self, id: str | None = None) -> None:
        """Forget the spare if it is this package (None: any)."""
        if self._spare is None or id not in (None, self._spare[0]):
            return
        (_, runtime), self._spare = self._spare, None
        self._cancel_expiry()
        await runtime.close()

    async def close(self) -> None:
        """Forget the spare; the server ends."""
        await self.drop()

    def _expire(self) -> None:
        self._cancel_expiry()

        async def later() -> None:
            await asyncio.sleep(SPARE_S)
            self._expiry = None  # it must not cancel itself
            with contextlib.suppress(DpfError):
                await self.drop()

        self._expiry = asyncio.ensure_future(later())

    def _cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
