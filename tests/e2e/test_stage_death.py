# SPDX-License-Identifier: Apache-2.0
"""The demo package's real processes, killed idle and in mid turn: the next turn works and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_car import LONG, STAGES, WATCHDOG_S, Car

from dpfedge.errors import Busy, StageDied
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    Failed,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.runtime import AsyncRuntime, Sampling


@pytest.mark.parametrize("stage", [*STAGES, "zygote"])
def test_idle__killed_stage_is_back_for_the_next_turn(car: Car, answer: str, stage: str) -> None:
    """The turn that comes at once waits for the new process; at worst it is told which stage died."""
    before = car.runtime.status()["stages"]
    car.kill(stage)
    with contextlib.suppress(StageDied):
        assert car.run(car.ask()) == answer
    car.run(car.steady())

    after = car.runtime.status()["stages"]
    restarted = {name for name in STAGES if after[name]["restarts"] > before[name]["restarts"]}
    assert restarted == (set(STAGES) if stage == "zygote" else {stage})


@pytest.mark.parametrize(
    ("stage", "moment"),
    [
        ("decoder", SpeechStarted),
        ("encoder", SpeechStopped),
        ("llm", Transcript),
        ("llm", TextDelta),
        ("voice", TextDelta),
        ("voice", AudioChunk),
    ],
)
def test_turn__killed_stage_is_named_or_answers(car: Car, answer: str, stage: str, moment: type[Event]) -> None:
    """Whoever waits gets an error that names the stage, or the whole answer; never silence."""

    async def turn() -> list[Event]:
        events: list[Event] = []
        async for event in car.runtime.stream(car.pcm, car.format):
            if isinstance(event, moment) and not any(isinstance(one, moment) for one in events):
                car.kill(stage)
            events.append(event)
        return events

    events = car.run(turn())
    failed = [event.error for event in events if isinstance(event, Failed)]

    if failed:
        assert [type(error) for error in failed] == [StageDied]
        assert isinstance(failed[0], StageDied)
        assert failed[0].stage == stage
    else:
        assert "".join(event.text for event in events if isinstance(event, TextDelta)).strip() == answer


def test_session__goes_on_after_its_llm_died(car: Car, answer: str) -> None:
    """The same conversation: the next question is answered, and what was said before is still known."""

    async def talk() -> list[Event]:
        session = await car.runtime.converse(car.format)
        events: list[Event] = []
        try:
            await session.push(car.pcm)
            async for event in session.events():
                events.append(event)
                if isinstance(event, TextDelta) and len(events) < 20 and not any(isinstance(e, Failed) for e in events):
                    car.kill("llm")
                    await asyncio.sleep(0.2)
                if isinstance(event, Failed | TurnDone):
                    if sum(isinstance(one, Failed | TurnDone) for one in events) == 2:
                        break
                    await session.push(car.pcm)
        finally:
            await car.runtime.end(session)
        assert [entry["role"] for entry in session.history][:1] == ["user"]
        return events

    events = car.run(talk())

    assert isinstance(events[-1], TurnDone)
    assert events[-1].finish == "stop"
    assert events[-1].turn > min(event.turn for event in events if event.turn)


@pytest.mark.parametrize("kind", ["chat", "speak", "transcribe"])
def test_single_request__hears_of_the_death(car: Car, answer: str, kind: str) -> None:
    """One answer, one error."""
    stage = {"chat": "llm", "speak": "voice", "transcribe": "encoder"}[kind]

    async def request() -> None:
        requests: dict[str, Callable[[], Any]] = {
            "chat": lambda: car.runtime.chat(LONG, Sampling(max_tokens=200)),
            "speak": lambda: car.runtime.speak("One, two, three. " * 30),
            "transcribe": lambda: car.runtime.transcribe(car.pcm * 8, car.format),
        }
        killed = False
        async for _ in requests[kind]():
            if not killed:
                killed = True
                car.kill(stage)

    with pytest.raises(StageDied) as caught:
        car.run(request())
    assert caught.value.stage == stage


def test_fifty_kills__under_load_leave_nothing_behind(car: Car, answer: str) -> None:
    """Descriptors of every process and /dev/shm are as before; the arena's slots are free."""

    async def load() -> None:
        while True:
            try:
                await car.ask()
            except (StageDied, Busy):
                await asyncio.sleep(0.01)

    async def storm() -> None:
        loading = asyncio.ensure_future(load())
        for count in range(50):
            stage = ("decoder", "encoder", "decoder", "voice", "decoder", "encoder", "decoder", "llm")[count % 8]
            while car.runtime.status()["stages"][stage]["state"] != "ready":
                await asyncio.sleep(0.02)
            car.kill(stage)
            await asyncio.sleep(0.02)
        loading.cancel()
        await asyncio.wait({loading})
        await car.steady()
        assert await car.ask() == answer

    def open_files() -> tuple[int, int, list[str]]:
        gc.collect()  # what earlier tests left to the collector is not this one's
        fds = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), car.pid("zygote"))]
        # the link bench's peer keeps files there
        return fds[0], fds[1], sorted(name for name in os.listdir("/dev/shm") if not name.startswith("iox2"))

    before = open_files()
    car._runner.run(asyncio.wait_for(storm(), 400))  # type: ignore[arg-type]

    assert open_files() == before
    links = car.runtime.status()["links"]
    assert {name: (row["loaned"], row["in_flight"]) for name, row in links.items()} == dict.fromkeys(links, (0, 0))


def test_restarted_stage__maps_the_package_that_was_opened(voice_package: Path, tmp_path: Path) -> None:
    """The file is replaced while it is served; a stage that dies comes back with the old one."""
    place = tmp_path / "served.dpfbin"
    os.link(voice_package, place)

    async def test() -> None:
        async with await AsyncRuntime.open(place, board="host") as runtime:
            inode = place.stat().st_ino
            other = tmp_path / "other"
            other.write_bytes(b"not a package")
            other.replace(place)
            pid = int(runtime.status()["stages"]["voice"]["pid"])
            os.kill(pid, signal.SIGKILL)
            chunks = [event async for event in runtime.speak("Ready again.") if isinstance(event, AudioChunk)]
            new = int(runtime.status()["stages"]["voice"]["pid"])
            maps = Path(f"/proc/{new}/maps").read_text().splitlines()

            assert chunks
            assert new != pid
            assert any(int(line.split()[4]) == inode for line in maps)

    asyncio.run(asyncio.wait_for(test(), WATCHDOG_S))  # type: ignore[arg-type]


HOLDER = """
import json, sys, time
from dpfedge import Runtime
runtime = Runtime.open(sys.argv[1], board="host")
status = runtime.status()
print(json.dumps([status["zygote"]["pid"], *(row["pid"] for row in status["stages"].values())]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_supervising_process__killed_takes_everything_along(
    voice_package: Path, until: Callable[..., None], number: signal.Signals
) -> None:
    """No stage outlives it, in no state."""
    command = [sys.executable, "-c", HOLDER, str(voice_package)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pids = json.loads(holder.stdout.readline())
        holder.send_signal(number)
        holder.wait(30)

        until(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
