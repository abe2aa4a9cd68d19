# SPDX-License-Identifier: Apache-2.0
"""The synchronous runtime's own methods; what is behind them is `test_looped.py`'s."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dpfedge.runtime.synchronous import SyncRuntime


class Inner:
    """Answers with what it was asked."""

    async def ask(self, audio: str, **options: Any) -> Any:
        return audio, options

    async def close(self) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        async def events(*given: Any, **options: Any) -> AsyncGenerator[Any, None]:
            yield name, given, options

        return events


class Toy(SyncRuntime):
    """Opened at once."""

    @staticmethod
    async def opener(package: str) -> Inner:
        return Inner()


@pytest.mark.parametrize("name", ["stream", "transcribe", "chat", "speak"])
def test_events__are_those_of_the_asynchronous_runtime(name: str) -> None:
    """With the same arguments."""
    with Toy._open("x") as runtime:
        assert list(getattr(runtime, name)("given", more=1)) == [(name, ("given",), {"more": 1})]
        assert runtime.ask("this", more=2) == ("this", {"more": 2})
