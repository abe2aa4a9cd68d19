# SPDX-License-Identifier: Apache-2.0
"""The demo package running on one event loop of the test's own, and a question for it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable
from typing import Any

from dpfedge.pipeline.events import (
    AudioChunk,
)
from dpfedge.runtime import AsyncRuntime, AudioFormat

STAGES = ("decoder", "encoder", "llm", "voice")
LONG = [{"role": "user", "content": "Count from one to five hundred, in words."}]
WATCHDOG_S = 120


class Car:
    """One running package on one event loop, and a question for it."""

    def __init__(self, runner: asyncio.Runner, runtime: AsyncRuntime) -> None:
        self._runner, self.runtime = runner, runtime
        self.pcm, self.format = b"", AudioFormat("pcm_s16le", int(runtime.facts["voice"]["rate"]))

    def run(self, work: Awaitable[Any]) -> Any:
        async def watched() -> Any:
            return await asyncio.wait_for(work, WATCHDOG_S)

        return self._runner.run(watched())

    async def learn(self) -> None:
        """The package's own voice asks the question."""
        async for event in self.runtime.speak("What is the capital of France?"):
            if isinstance(event, AudioChunk):
                self.pcm += event.samples.tobytes()
        self.pcm += bytes(len(self.pcm) // 4 * 2)

    async def ask(self) -> str:
        return (await self.runtime.ask(self.pcm, self.format)).text

    async def steady(self) -> None:
        while not self.runtime.ready:
            await asyncio.sleep(0.05)

    def pid(self, stage: str) -> int:
        status = self.runtime.status()
        pid = int(status["zygote"]["pid"] if stage == "zygote" else status["stages"][stage]["pid"])
        assert pid > 1
        return pid

    def kill(self, stage: str) -> None:
        os.kill(self.pid(stage), signal.SIGKILL)

    def places(self) -> list[int]:
        return self.runtime._engine.arena.requests.keys()
