# SPDX-License-Identifier: Apache-2.0
"""A stage killed with SIGKILL in mid turn: until its caller is told, until it serves again, and where that time goes.

Every round asks a spoken question and kills the stage at the first audio of the answer. Counted from the kill: when the
turn's stream says StageDied, when the stage is ready, when the first sound of a new request is there. Then the parts of
the restart: before the new process loads (death, reclaim, fork), its load, its warm-up; and the processor time of both,
which is what they would take on a machine that does nothing else. There is no back-off here; the
first death of a stage has none either. Beside it, two processes that only have a link: how long a port waits for a peer
that was killed.

Usage: python tests/bench/bench_recovery.py build/voice.dpfbin [rounds] [stage]
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e" / "made"))

import numpy as np
from made_car import Car
from peers import header

from dpfedge.errors import PeerGone, StageDied
from dpfedge.link import Arena, LinkSpec
from dpfedge.pipeline import unit
from dpfedge.pipeline.events import AudioChunk, Failed
from dpfedge.pipeline.processes import cpu_seconds
from dpfedge.runtime import AsyncRuntime

Figures = dict[str, list[float]]
os.environ.setdefault("DPFEDGE_TRUST", str(Path(__file__).parents[2] / "build" / "trust"))  # of the demo's key


async def kill_in_turn(car: Car, stage: str) -> dict[str, float]:
    """Milliseconds of one round."""
    killed = told = 0.0
    async for event in car.runtime.stream(car.pcm, car.format):
        if isinstance(event, AudioChunk) and not killed:
            pid = car.pid(stage)
            ready = asyncio.ensure_future(back(car, stage, pid))
            killed = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
        elif isinstance(event, Failed):
            assert isinstance(event.error, StageDied), event.error
            assert event.error.stage == stage
            told = time.perf_counter()
    found = {"ready": await ready - killed, "spent": cpu_seconds(car.pid(stage))}
    if told:  # a stage that had done its part already is not missed
        found["told"] = told - killed
    async for event in car.runtime.speak("Yes."):
        if isinstance(event, AudioChunk):
            found["heard"] = time.perf_counter() - killed
            break
    row = car.runtime.status(memory=False)["stages"][stage]
    found = {name: value * 1e3 for name, value in found.items()}
    found["load"], found["warm"] = row["load_ms"], row["warm_ms"]
    found["before"] = found["ready"] - row["load_ms"] - row["warm_ms"]
    return found


async def back(car: Car, stage: str, pid: int) -> float:
    """When another process of the stage is ready."""
    while True:
        row = car.runtime.status(memory=False)["stages"][stage]
        if row["state"] == "ready" and row["pid"] != pid:
            return time.perf_counter()
        await asyncio.sleep(0.001)


async def quiet(car: Car) -> None:
    await car.steady()
    await asyncio.sleep(0.3)  # what others do after a restart is not this one's


def peers_gone(rounds: int) -> Figures:
    """Milliseconds from SIGKILL to PeerGone, for a producer that waits for a slot and for a consumer that waits."""
    found: Figures = {"producer waits": [], "consumer waits": []}
    for _ in range(rounds):
        for name, values in found.items():
            link = LinkSpec("left.right", "left", "right", 1, 64, "block", 10_000_000_000)
            with Arena.create([link], requests=1) as arena:
                values.append(one_death(arena, waits_to_send=name == "producer waits") * 1e3)
    return found


def one_death(arena: Arena, *, waits_to_send: bool) -> float:
    """Seconds; the other end is a process that another one kills while this one sleeps."""
    port = arena.producer("left.right", 1) if waits_to_send else arena.consumer("left.right", 1)
    ready, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        kept = arena.consumer("left.right", 2) if waits_to_send else arena.producer("left.right", 2)
        os.write(theirs, b"x")
        while kept:
            signal.pause()
    os.read(ready, 1)
    came, told = os.pipe()
    killer = os.fork()
    if killer == 0:
        time.sleep(0.05 + time.monotonic_ns() % 100 / 1e3)
        at = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        os.write(told, str(at).encode())
        os._exit(0)
    try:
        if waits_to_send:
            port.send(port.loan(8), kind=1, request=1)  # type: ignore[union-attr]
            port.loan(8)  # type: ignore[union-attr]
        else:
            port.wait(None)  # type: ignore[union-attr]
    except PeerGone:
        now = time.monotonic_ns()
    seconds = (now - int(os.read(came, 32))) / 1e9
    for child in (pid, killer):
        os.waitpid(child, 0)
    for fd in (ready, theirs, came, told):
        os.close(fd)
    return seconds


def line(name: str, values: list[float]) -> None:
    p50, p99 = np.percentile(values, (50, 99))
    print(f"  {name:34s} {p50:8.1f} / {p99:8.1f} / {max(values):8.1f}")


def main() -> None:
    package, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    stage = sys.argv[3] if len(sys.argv) > 3 else "voice"
    header()
    unit.BACK_OFF_S, unit.STAGE_RESTARTS_WINDOW_S = (0.0,), 0
    with asyncio.Runner() as runner:
        runtime = runner.run(AsyncRuntime.open(Path(package), board="host"))
        car, found = Car(runner, runtime), {}  # type: tuple[Car, dict[str, list[float]]]
        car.run(car.learn())
        for _ in range(rounds):
            car.run(quiet(car))
            for name, value in car.run(kill_in_turn(car, stage)).items():
                found.setdefault(name, []).append(value)
        car.run(runtime.close())
    print(f"\n{stage} killed at the first audio of a turn, {rounds} times: ms P50 / P99 / most")
    texts: dict[str, Any] = {
        "told": "the turn's caller has its error", "ready": "the stage is ready", "heard": "the next request is heard",
        "before": "  death, reclaim, fork, imports", "load": "  load", "warm": "  warm-up",
        "spent": "  processor time of it",
    }  # fmt: skip
    for name, text in texts.items():
        line(text, found.get(name, [float("nan")]))
    print(f"\nPeerGone without a supervisor, {rounds} times each: ms P50 / P99 / most")
    for name, values in peers_gone(rounds).items():
        line(name, values)


if __name__ == "__main__":
    main()
