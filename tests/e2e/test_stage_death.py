# SPDX-License-Identifier: Apache-2.0
"""The demo package's real processes: killed idle and in mid turn, cancelled, counted, traced."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend.api import Budget
from dpfedge.binding import bind_here
from dpfedge.errors import Busy, StageDied
from dpfedge.limits import REQUESTS_MAX
from dpfedge.link import LAST, Arena
from dpfedge.package import open_package
from dpfedge.pipeline import supervisor
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
from dpfedge.pipeline.graph import Graph
from dpfedge.pipeline.io import send_map
from dpfedge.pipeline.runner import StageRunner
from dpfedge.runtime import AsyncRuntime, AudioFormat, Sampling
from dpfedge.stage.api import Kind, Mode
from dpfedge.stage.decoder import DecoderStage
from dpfedge.stage.encoder import EncoderStage

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


@pytest.fixture(scope="module")
def car(voice_package: Path) -> Iterator[Car]:
    """One runtime for all tests that leave it working; restarts wait for nothing."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        patch.setattr(supervisor, "_BACK_OFF_S", (0.0,))
        patch.setattr(supervisor, "STAGE_RESTARTS_WINDOW_S", 0)
        runtime = runner.run(AsyncRuntime.open(voice_package, board="host"))
        one = Car(runner, runtime)
        one.run(one.learn())
        yield one
        one.run(runtime.close())


@pytest.fixture
def answer(car: Car) -> Iterator[str]:
    """What an undisturbed pipeline answers; every test must leave one that still does, with all places free."""
    car.run(car.steady())
    words: str = car.run(car.ask())
    assert words
    yield words
    assert car.run(car.ask()) == words
    assert car.places() == []
    car.run(car.steady())


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
        fds = [len(os.listdir(f"/proc/{pid}/fd")) for pid in (os.getpid(), car.pid("zygote"))]
        return fds[0], fds[1], sorted(os.listdir("/dev/shm"))

    before = open_files()
    car._runner.run(asyncio.wait_for(storm(), 400))  # type: ignore[arg-type]

    assert open_files() == before
    links = car.runtime.status()["links"]
    assert {name: (row["loaned"], row["in_flight"]) for name, row in links.items()} == dict.fromkeys(links, (0, 0))


def test_encoder__reads_the_utterance_where_the_decoder_wrote_it(voice_package: Path, car: Car) -> None:
    """Both stages over one arena in this process: the array handed to the model lies in the arena's memory."""
    bound = bind_here(open_package(voice_package), "host")
    graph = Graph.from_manifest(bound.package.manifest.pipeline, "test")
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
        runners = [StageRunner(decoder, arena, 1), StageRunner(encoder, arena, 2)]
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


BINDER = """
import sys
seen = []
sys.addaudithook(lambda event, arguments: seen.append(event) if event.startswith("socket.") else None)
from dpfedge.binding import bind_here
from dpfedge.package import open_package
print(bind_here(open_package(sys.argv[1]), "host").target.id)
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
