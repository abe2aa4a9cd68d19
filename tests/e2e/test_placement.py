# SPDX-License-Identifier: Apache-2.0
"""The demo package on boards that put its stages into one process, or give one a real-time priority."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from made_car import STAGES, WATCHDOG_S

from dpfedge.pipeline import unit
from dpfedge.runtime import AsyncRuntime, AudioFormat

BOARD = """# SPDX-License-Identifier: Apache-2.0
title: this machine's CPU
vendor: any
match: {always: true}
devices:
  - {id: cpu, kind: cpu, backends: [cpu]}
placement:
  decoder: {threads: 1%s}
  encoder: {threads: 2%s}
  llm: {threads: 2%s}
  voice: {threads: 2%s}
"""
Use = Callable[[AsyncRuntime], Awaitable[None]]


@pytest.fixture
def on_board(voice_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`on_board(use, decoder, encoder, llm, voice)`: the package on a board with these additions to its places."""

    def run(use: Use, *places: str) -> None:
        (tmp_path / "mine.yaml").write_text(BOARD % places)
        monkeypatch.setenv("DPFEDGE_BOARDS", str(tmp_path))
        monkeypatch.setattr(unit, "BACK_OFF_S", (0.0,))

        async def opened() -> None:
            async with await AsyncRuntime.open(voice_package, board="mine") as runtime:
                await use(runtime)

        asyncio.run(asyncio.wait_for(opened(), WATCHDOG_S))

    return run


async def question(runtime: AsyncRuntime) -> tuple[bytes, AudioFormat]:
    """The package's own voice asks."""
    pcm = b""
    async for event in runtime.speak("What is the capital of France?"):
        pcm += event.samples.tobytes() if hasattr(event, "samples") else b""
    return pcm + bytes(len(pcm) // 4 * 2), AudioFormat("pcm_s16le", int(runtime.facts["voice"]["rate"]))


async def ready(runtime: AsyncRuntime) -> None:
    while not runtime.ready:
        await asyncio.sleep(0.05)


def test_all_stages_in_one_process__answer_and_come_back_together(on_board: Callable[..., None]) -> None:
    """The same turn over the same links; one death is the death of all, and the next turn works."""

    async def use(runtime: AsyncRuntime) -> None:
        asked = await question(runtime)
        answer = (await runtime.ask(*asked)).text
        before: dict[str, Any] = runtime.status()["stages"]
        [pid] = {row["pid"] for row in before.values()}
        threads = {
            Path(f"/proc/{pid}/task/{task}/comm").read_text().strip() for task in os.listdir(f"/proc/{pid}/task")
        }
        assert "Paris" in answer
        assert threads >= {f"dpf-{name}" for name in STAGES}

        os.kill(pid, signal.SIGKILL)
        while runtime.status()["stages"]["llm"]["restarts"] == 0:
            await asyncio.sleep(0.01)
        await ready(runtime)
        assert (await runtime.ask(*asked)).text == answer
        after = runtime.status()["stages"]
        assert {row["restarts"] for row in after.values()} == {1}
        assert {row["process"] for row in after.values()} == {"decoder"}

    on_board(use, *[", isolation: thread"] * 4)


def test_two_stages_in_one_process__and_the_others_in_their_own(on_board: Callable[..., None]) -> None:
    """A small board's way: what needs the processor most stays alone."""

    async def use(runtime: AsyncRuntime) -> None:
        pids = {name: row["pid"] for name, row in runtime.status()["stages"].items()}
        assert pids["decoder"] == pids["voice"]
        assert len(set(pids.values())) == 3

        os.kill(pids["llm"], signal.SIGKILL)
        asked = await question(runtime)
        await ready(runtime)
        assert "Paris" in (await runtime.ask(*asked)).text
        assert {name: row["pid"] == pids[name] for name, row in runtime.status()["stages"].items()} == {
            "decoder": True, "encoder": True, "llm": False, "voice": True,
        }  # fmt: skip

    on_board(use, ", isolation: thread", "", "", ", isolation: thread")


def test_real_time_stage__answers_or_says_that_it_was_refused(on_board: Callable[..., None]) -> None:
    """By what this machine allows; the libraries' threads are ordinary ones."""

    async def use(runtime: AsyncRuntime) -> None:
        row = runtime.status()["stages"]["decoder"]
        tasks = [int(task) for task in os.listdir(f"/proc/{row['pid']}/task")]
        fifo = [task for task in tasks if os.sched_getscheduler(task) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO]
        priorities = sorted(os.sched_getparam(task).sched_priority for task in fifo)
        assert (priorities, row["refused"]) in [
            ([20, 21], []),  # whoever ends its runs goes before it
            ([], ["fifo 20 needs CAP_SYS_NICE or RLIMIT_RTPRIO; it runs at an ordinary priority"]),
        ]
        assert "Paris" in (await runtime.ask(*await question(runtime))).text

    on_board(use, ", fifo: 20", "", "", "")
