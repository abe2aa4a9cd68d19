# SPDX-License-Identifier: Apache-2.0
"""From the supervisor's thread to the event loop: what happens to stages in, told to the requests they concern."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

from dpfedge.errors import DpfError, StageDied
from dpfedge.pipeline.observer import Observer

__all__ = ["Dispatcher", "Waiting"]


class Waiting(Protocol):
    """One request's end; everything is called on the loop."""

    def stage_died(self, stage: str, error: DpfError) -> Any:
        """A stage's process ended."""

    def fail(self, error: DpfError) -> None:
        """The request can go on no more."""


@runtime_checkable
class Rests(Protocol):
    """A request that goes on when a stage is started anew between two of its turns."""

    def resting(self, stage: str) -> bool:
        """Whether nothing would be lost now; from any thread."""


class Dispatcher:
    """Hears of stages from the supervisor's thread and tells the requests they concern, on the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.open: dict[int, Waiting] = {}
        """Request key → who waits for it."""
        self.observer: Observer | None = None
        self._raised: dict[str, str] = {}

    def post(self, action: Callable[[], None]) -> None:
        """Run `action` on the loop soon; a closed loop has nothing to do any more."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(action)

    def resting(self, keys: Iterable[int], stage: str) -> bool:
        """Whether these requests lose nothing when the stage is started anew now; from any thread."""
        requests = [self.open.get(key) for key in keys]
        return all(isinstance(one, Rests) and one.resting(stage) for one in requests)

    def happened(self, stage: str, event: Mapping[str, Any]) -> None:
        """Tell the observer, on the loop; what its code raised is part of the stage's death."""
        if event.get("what") == "raised":
            self._raised[stage] = str(event.get("found"))
        if self.observer is not None:
            self.observer.happened(stage, event)

    def stage_ready(self, name: str) -> None:
        """Only an observer waits for it: what a restarted stage has to do is in its links already."""
        if self.observer is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.observer.stage_ready, name)

    def stage_died(self, name: str) -> None:
        """Pass the death on to the loop."""
        try:
            self._loop.call_soon_threadsafe(self._died, name)
        except RuntimeError:  # the loop is closed, and every request with it
            return

    def _died(self, name: str) -> None:
        if self.observer is not None:
            self.observer.stage_died(name)
        error = StageDied(
            "its process died while it held the request", stage=name, found=self._raised.pop(name, None),
            remedy="it is restarted; try again",
        )  # fmt: skip
        for request in tuple(self.open.values()):
            request.stage_died(name, error)
