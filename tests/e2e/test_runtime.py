# SPDX-License-Identifier: Apache-2.0
"""The demo package's real processes undisturbed: cancelled, counted, traced."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from made_car import LONG, STAGES, WATCHDOG_S, Car

from dpfedge.backend.api import Budget
from dpfedge.binding import bind_here
from dpfedge.errors import Busy
from dpfedge.limits import REQUESTS_MAX
from dpfedge.link import LAST, Arena
from dpfedge.package import open_package
from dpfedge.pipeline.events import (
    AudioChunk,
    Event,
    SpeechStarted,
    TextDelta,
    Transcript,
    TurnDone,
)
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.messages import send_map
from dpfedge.pipeline.runner import StageRunner
from dpfedge.runtime import Sampling
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.decoder import DecoderStage
from dpfedge.stage.encoder import EncoderStage


def test_cancel__frees_every_place(car: Car, answer: str) -> None:
    """More cancelled answers than the llm has places, cut at every moment; none of them is missing afterwards."""

    async def cut(delay: float) -> None:
        async def read() -> None:
            async for _ in car.runtime.chat(LONG, Sampling(max_tokens=400)):
                pass

        task = asyncio.ensure_future(read())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait({task})

    async def many() -> int:
        places = int(car.runtime.facts["llm"]["places"])
        for index in range(3 * places):
            await cut(0.03 * index)
        count = 0
        for _ in range(2):
            async for event in car.runtime.chat(LONG, Sampling(max_tokens=4)):
                count += isinstance(event, TurnDone)
        return count

    assert car.run(many()) == 2
    assert car.places() == []


def test_cancel__in_the_middle_of_a_turn(car: Car, answer: str) -> None:
    """Leaving the iterator is enough."""

    async def cut(moment: type[Event]) -> None:
        events = car.runtime.stream(car.pcm, car.format)
        async for event in events:
            if isinstance(event, moment):
                break
        await events.aclose()
        assert car.places() == []

    for moment in (SpeechStarted, Transcript, TextDelta, AudioChunk):
        car.run(cut(moment))


def test_places__all_taken_is_busy(car: Car, answer: str) -> None:
    """The one too many is told so; the others are untouched."""

    async def fill() -> None:
        opened = []
        try:
            for _ in range(REQUESTS_MAX):
                opened.append(await car.runtime.converse(car.format))
            with pytest.raises(Busy):
                await car.runtime.converse(car.format)
            assert len(car.places()) == REQUESTS_MAX
        finally:
            for session in opened:
                await car.runtime.end(session)

    car.run(fill())


def test_chunks__that_are_kept_do_not_stop_the_voice(car: Car, answer: str) -> None:
    """More speech than the link has slots, all of it held by the caller."""

    async def keep() -> list[Event]:
        return [event async for event in car.runtime.speak("Yes. " * 30)]

    events = car.run(keep())
    slots = car.runtime._engine.arena.links["voice.sink"].slots

    assert sum(isinstance(event, AudioChunk) for event in events) > slots
    assert isinstance(events[-1], TurnDone)


def test_turn__moves_no_tensor_bytes(car: Car, answer: str) -> None:
    """No link copies, drops or corrupts anything, and all slots come back."""
    before = car.runtime.status()["links"]
    car.run(car.ask())
    after = car.runtime.status()["links"]

    for name, link in after.items():
        assert {key: link[key] - before[name][key] for key in ("copies", "copied_bytes", "dropped", "corrupt")} == {
            "copies": 0, "copied_bytes": 0, "dropped": 0, "corrupt": 0,
        }, name  # fmt: skip
    assert after["decoder.encoder"]["sent"] > before["decoder.encoder"]["sent"]


def test_encoder__reads_the_utterance_where_the_decoder_wrote_it(voice_package: Path, car: Car) -> None:
    """Both stages over one arena in this process: the array handed to the model lies in the arena's memory."""
    bound = bind_here(open_package(voice_package), "host")
    graph = Graph.of_package(bound.package)
    nodes = {node.name: node for node in graph.stages}
    budget = Budget(threads=1, cores=())
    encoder = EncoderStage(bound.model(nodes["encoder"].model), nodes["encoder"].config, budget)
    decoder = DecoderStage(bound.model(nodes["decoder"].model), nodes["decoder"].config, budget)
    given: list[tuple[int, int]] = []
    load = encoder._recogniser._encode

    class Spy:
        """The encoder's first graph, with a note of every input's place."""

        def bind(self) -> Any:
            call = load.bind()
            original = call.set_input

            def set_input(name: str, array: Any) -> None:
                given.append((array.__array_interface__["data"][0], array.nbytes))
                original(name, array)

            call.set_input = set_input  # type: ignore[method-assign]
            return call

    encoder._recogniser._encode = Spy()  # type: ignore[assignment]
    with Arena.create(graph.links(), requests=4, name="place-check") as arena:
        runners = [
            StageRunner(stage, stage.name, nodes[stage.name].wiring, arena, owner)
            for owner, stage in enumerate((decoder, encoder), 1)
        ]
        key = arena.requests.open()
        options = {"mode": int(Mode.TRANSCRIBE), "route": ["decoder", "encoder"]}
        form = {"encoding": "pcm_s16le", "rate": car.format.rate, "channels": 1}
        source = arena.producer("source.decoder", 9)
        send_map(source, key, Kind.START, {**options, "format": form})
        send_map(arena.producer("source.encoder", 9), key, Kind.START, options)
        for start in range(0, len(car.pcm), 40_000):
            piece = car.pcm[start : start + 40_000]
            loan = source.loan(len(piece))
            loan.view[: len(piece)] = piece
            flags = LAST if start + 40_000 >= len(car.pcm) else 0
            source.send(loan, kind=int(Kind.AUDIO), request=key, dtype=0, shape=(len(piece),), flags=flags)
        done = [False]
        while not (all(done) and given):
            done = [runner.turn_over() for runner in runners]
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "place-check" in line]
        ranges = [tuple(int(edge, 16) for edge in row[0].split("-")) for row in maps]

        assert given
        for address, nbytes in given:
            assert any(low <= address and address + nbytes <= high for low, high in ranges)
        assert arena.stats()["decoder.encoder"].copies == 0


def test_idle__nobody_polls(car: Car, answer: str) -> None:
    """Warm stages sleep: over a second, hardly any of their threads is woken."""

    def wakeups() -> int:
        total = 0
        for stage in (*STAGES, "zygote"):
            for status in Path(f"/proc/{car.pid(stage)}/task").glob("*/status"):
                lines = status.read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
        return total

    car.run(car.ask())
    time.sleep(1)
    before = wakeups()
    time.sleep(1)
    assert wakeups() - before <= 10


BINDER = """
import sys
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event) if event.startswith("socket.") else None)
from dpfedge.binding import bind_here
from dpfedge.package import open_package
print(*[target.id for target in bind_here(open_package(sys.argv[1]), "host").targets])
sys.exit(f"sockets: {seen}" if seen else 0)
"""


def test_binding__opens_no_socket(voice_package: Path) -> None:
    """Neither Python's nor, where system calls can be traced, anybody else's."""
    command = [sys.executable, "-c", BINDER, str(voice_package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WATCHDOG_S)
    assert done.returncode == 0, done.stderr
    if shutil.which("strace"):
        trace = ["strace", "-f", "-qq", "-e", "trace=%network", "-e", "signal=none"]
        traced = subprocess.run([*trace, *command], capture_output=True, text=True, timeout=WATCHDOG_S)
        if "ptrace" not in traced.stderr.lower():  # tracing may be forbidden here
            assert traced.stderr == ""
