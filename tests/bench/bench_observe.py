# SPDX-License-Identifier: Apache-2.0
"""What observing costs the server's own process: processor time of a spoken turn and of a typed one, by what is on.

Only this process is counted, which is where all of it happens; the stages are processes of their own. The same turns
are asked of each runtime in turn. Usage: python tests/bench/bench_observe.py build/voice.dpfbin [rounds]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peers import header

from dpfedge.pipeline.events import AudioChunk
from dpfedge.pipeline.recorder import Recorder
from dpfedge.runtime import AsyncRuntime, AudioFormat, Sampling
from dpfedge.serve.turnlog import TurnLog
from dpfedge.serve.turns import Reporter

TOKENS = 32
_MESSAGES = [{"role": "user", "content": "Count from one to five hundred, in words."}]


async def spent(work: Callable[[], Any]) -> float:
    """Processor ms of this process, all its threads."""
    before = time.process_time_ns()
    await work()
    return (time.process_time_ns() - before) / 1e6


async def question(runtime: AsyncRuntime) -> tuple[bytes, AudioFormat]:
    """The package's own voice asks."""
    pcm = b""
    async for event in runtime.speak("What is the capital of France?"):
        if isinstance(event, AudioChunk):
            pcm += event.samples.tobytes()
    return pcm + bytes(len(pcm) // 2), AudioFormat("pcm_s16le", int(runtime.facts["voice"]["rate"]))


async def measure(package: str, count: int, folder: Path) -> None:
    """One table."""
    reporter = Reporter([TurnLog(folder / "turns.log")])
    makers: dict[str, Any] = {
        "nothing on": None,
        "turn log": reporter,
        "flight recorder": Recorder(folder / "flight", 60, audio=False),
        "flight recorder with audio": Recorder(folder / "flight-audio", 60, audio=True),
    }
    found: dict[str, dict[str, list[float]]] = {name: {"spoken": [], "typed": []} for name in makers}
    runtimes = {}
    for name, observe in makers.items():
        runtimes[name] = await AsyncRuntime.launch(package, observe=observe)
        await runtimes[name].wait_ready()
    pcm, form = await question(runtimes["nothing on"])

    async def typed(runtime: AsyncRuntime) -> None:
        async for _ in runtime.chat(_MESSAGES, Sampling(max_tokens=TOKENS)):
            pass

    for number in range(count + 1):
        for name, runtime in runtimes.items():
            costs = {"spoken": await spent(lambda r=runtime: r.ask(pcm, form))}
            costs["typed"] = await spent(lambda r=runtime: typed(r))
            for kind, cost in costs.items():
                found[name][kind] += [cost] if number else []  # the first round warms up
    for runtime in runtimes.values():
        await runtime.close()
    print(f"processor ms of the server's process per turn, median of {count}: spoken; typed, {TOKENS} tokens")
    for name, kinds in found.items():
        print(f"  {name.ljust(28)} " + "  ".join(f"{statistics.median(costs):7.2f}" for costs in kinds.values()))


if __name__ == "__main__":
    header()
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(measure(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 15, Path(made)))
