# SPDX-License-Identifier: Apache-2.0
"""A running pipeline on a fake machine, a folder of sensor files, that heats up, cools down and runs out of memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from made_variant import variant

from dpfedge.errors import ConfigError
from dpfedge.pipeline.events import Failed, TextDelta, TurnDone
from dpfedge.pipeline.pressure import VARIABLE
from dpfedge.runtime import AsyncPipeline, AsyncRuntime

STAGES = """
from dpfedge.stage import Dim, Each, Kind, Port, Ports
TEXT = Port("bytes", (Dim("bytes", 0, 64),), unit="utf-8")
class Half(Each):
    ports = Ports({"words": TEXT}, {"said": TEXT})
    LIVE, out = ("loud",), "said"
    def __init__(self, model, config, budget):
        super().__init__(model, config, budget)
        self.adjust({})
    def adjust(self, settings):
        self.loud = {**self.config, **settings}["loud"]
    def each(self, io, message):
        text = message.text().upper() if self.loud else message.text().lower()
        yield from io.text(self.out, Kind.DATA, text, turn=message.turn)
class Echo(Half):
    ports, out = Ports({"said": TEXT}, {"echo": TEXT}), "echo"
"""
PIPELINE = """
name: two-halves
pipeline:
  stages:
    first: {kind: "stages:Half", loud: true}
    second: {kind: "stages:Echo", loud: true}
  links:
    - {from: first.said, to: second.said}
  ladder:
    - name: warm
      when: {temperature: 80C}
      until: {temperature: 70C}
      hold: 0s
      set: {second: {loud: false}}
    - name: short
      when: {memory_free: 10%}
      until: {memory_free: 20%}
      hold: 0s
      set: {first: {loud: false}}
    - name: saving
      when: {power_mode: [7W]}
      hold: 0s
      optional: true
      set: {first: {loud: false}}
"""


class FakeMachine:
    """A folder with the sensor files of a machine that is none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._write("sys/class/thermal/thermal_zone0/type", "fake-thermal")
        self._write("etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=7W >")
        self.set()

    def set(self, celsius: float = 40.0, free: float = 0.5, mode: int = 0) -> None:
        """Be so from now on."""
        self._write("sys/class/thermal/thermal_zone0/temp", str(round(celsius * 1000)))
        self._write("proc/meminfo", f"MemTotal: 1000 kB\nMemAvailable: {round(free * 1000)} kB")
        self._write("var/lib/nvpmodel/status", f"pmode:{mode:04d}")

    def _write(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.with_suffix(".new").write_text(text)
        place.with_suffix(".new").rename(place)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """Fake, cool, idle; what a pipeline that is started now takes for its machine."""
    made = FakeMachine(tmp_path / "fake-machine")
    monkeypatch.setenv(VARIABLE, str(made.folder))
    return made


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A pipeline of two stages, and their code."""
    (tmp_path / "stages.py").write_text(STAGES)
    (tmp_path / "two.yaml").write_text(PIPELINE)
    return tmp_path / "two.yaml"


async def soon(holds: Callable[[], bool], what: str) -> None:
    """Wait for what happens within seconds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not happen"
        await asyncio.sleep(0.05)


async def said(pipeline: AsyncPipeline) -> str:
    """What the two stages make of a word: in capitals where they are loud."""
    async with await pipeline.request() as flow:
        await flow.send("first.words", "Hello")
        await flow.finish()
        return "".join([output.text async for output in flow.outputs() if output.port == "echo"])


def test_graph__heat_changes_a_running_stage_and_back(machine: FakeMachine, graph: Path) -> None:
    """Each step is an event with its reason; the stage answers otherwise without a new start."""

    async def play() -> None:
        async with await AsyncPipeline.open(graph) as pipeline:

            def level() -> int:
                return int(pipeline.status(memory=False)["degrade"]["level"])

            assert await said(pipeline) == "HELLO"
            machine.set(celsius=85)
            await soon(lambda: level() == 1, "step warm")
            pids = {row["pid"] for row in pipeline.status()["stages"].values()}
            assert await said(pipeline) == "hello"
            machine.set(celsius=75)  # neither hot enough nor cool enough
            await asyncio.sleep(2.5)
            assert level() == 1
            machine.set(celsius=60)
            await soon(lambda: level() == 0, "leaving step warm")
            assert await said(pipeline) == "HELLO"
            assert {row["pid"] for row in pipeline.status()["stages"].values()} == pids

            events = pipeline.status()["degrade"]["events"]
            assert [(event["what"], event["step"], event["reason"]) for event in events] == [
                ("step entered", "warm", "temperature 85.0 °C, at least 80.0 °C"),
                ("step left", "warm", "temperature 60.0 °C, at most 70.0 °C"),
            ]

    asyncio.run(play())


def test_graph__memory_and_power_mode_climb_through_the_steps_before(machine: FakeMachine, graph: Path) -> None:
    """One step at a time, up and down."""

    async def play() -> None:
        async with await AsyncPipeline.open(graph) as pipeline:

            def steps() -> list[tuple[str, str]]:
                return [(event["what"], event["step"]) for event in pipeline.status(memory=False)["degrade"]["events"]]

            up, down = [("step entered", name) for name in ("warm", "short", "saving")], "step left"
            machine.set(free=0.05)
            await soon(lambda: steps() == up[:2], "step short")
            machine.set(free=0.05, mode=1)
            await soon(lambda: steps() == up, "step saving")
            machine.set()
            await soon(lambda: steps() == [*up, (down, "saving"), (down, "short"), (down, "warm")], "all steps left")
            assert await said(pipeline) == "HELLO"

    asyncio.run(play())


def test_graph__a_stage_that_died_has_the_settings_again(machine: FakeMachine, graph: Path) -> None:
    """They are the supervisor's, not only the dead process's."""

    async def play() -> None:
        async with await AsyncPipeline.open(graph) as pipeline:
            machine.set(celsius=85)
            await soon(lambda: pipeline.status(memory=False)["degrade"]["level"] == 1, "step warm")
            pid = pipeline.status()["stages"]["second"]["pid"]
            os.kill(pid, signal.SIGKILL)

            def back() -> bool:
                row = pipeline.status(memory=False)["stages"]["second"]
                return bool(row["state"] == "ready" and row["pid"] != pid)

            await soon(back, "the restart")
            assert await said(pipeline) == "hello"

    asyncio.run(play())


def test_graph__on_a_machine_without_the_sensor(machine: FakeMachine, graph: Path) -> None:
    """Refused by name before a stage starts; an optional step is left out, and that is an event."""
    (machine.folder / "var/lib/nvpmodel/status").unlink()

    async def play() -> list[dict[str, Any]]:
        async with await AsyncPipeline.open(graph) as pipeline:
            return list(pipeline.status(memory=False)["degrade"]["events"])

    [event] = asyncio.run(play())
    assert event["what"] == "step left out"
    (machine.folder / "sys/class/thermal/thermal_zone0/type").unlink()
    (machine.folder / "sys/class/thermal/thermal_zone0/temp").unlink()
    (machine.folder / "sys/class/thermal/thermal_zone0").rmdir()
    with pytest.raises(ConfigError, match="step warm: this machine tells no temperature"):
        asyncio.run(play())


# --- a server with the demo's voice ---

VOICE_LADDER = [
    {
        "name": "warm", "when": {"temperature": "80C"}, "until": {"temperature": "70C"}, "hold": "0s",
        "set": {"llm": {"sampling": {"max_tokens": 3}}, "encoder": {"partials": False}},
    },
    {
        "name": "hot", "when": {"temperature": "90C", "memory_free": "10%"}, "hold": "0s",
        "until": {"temperature": "85C", "memory_free": "20%"}, "set": {"llm": {"model": "other"}},
    },
]  # fmt: skip


@pytest.fixture
def server(
    start_server: Callable[..., Any], voice_package: Path, demo_key: Path, tmp_path: Path, machine: FakeMachine
) -> Iterator[Any]:
    """A server of the demo's voice with a ladder and a second llm, on the fake machine, with a turn log."""
    twins, package = {"other": "llm"}, tmp_path / "ladder.dpfbin"
    variant(voice_package, package, "2", demo_key, ladder=VOICE_LADDER, twins=twins)
    one = start_server(package, tmp_path, "--log", str(tmp_path / "turns.log"))
    one.wait_ready()
    yield one
    if one.process.poll() is None:
        one.stop()


def level(server: Any) -> int:
    """How many steps are in force."""
    return int(server.status()["degrade"]["level"])


def answer(server: Any) -> tuple[int, str]:
    """How many tokens an answer had, and why it ended."""
    body = {"model": "voice", "messages": [{"role": "user", "content": "Name the planets of the solar system."}]}
    told = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=100).json()
    return told["usage"]["completion_tokens"], told["choices"][0]["finish_reason"]


def gauges(server: Any) -> dict[str, float]:
    """The server's metrics."""
    lines = httpx.get(f"{server.url}/metrics", timeout=30).text.splitlines()
    return {key: float(value) for key, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_voice__heat_shortens_answers_and_swaps_the_model(
    server: Any, machine: FakeMachine, tmp_path: Path, until: Callable[..., None]
) -> None:
    """Down the ladder and up again: the running llm is told, then replaced, and metrics, top and the log show it."""
    tokens, _ = answer(server)
    assert tokens > 3
    llm = server.status()["stages"]["llm"]["pid"]

    machine.set(celsius=82)
    until(lambda: level(server) == 1)
    assert answer(server) == (3, "length")
    assert server.status()["stages"]["llm"]["pid"] == llm

    machine.set(celsius=95, mode=1)
    until(lambda: level(server) == 2)
    until(lambda: any(event["what"] == "replaced" for event in server.status()["degrade"]["events"]))
    until(lambda: server.status()["stages"]["llm"]["state"] == "ready")
    assert server.status()["stages"]["llm"]["pid"] != llm
    assert answer(server) == (3, "length")

    shown = gauges(server)
    assert shown["dpfedge_ladder_level"] == 2
    assert shown['dpfedge_temperature_celsius{zone="fake-thermal"}'] == 95
    assert shown['dpfedge_power_mode{mode="7W"}'] == 1
    assert shown["dpfedge_memory_free_ratio"] == 0.5
    top = [sys.executable, "-m", "dpfedge", "top", "--once", "--socket", str(server.socket)]
    drawn = subprocess.run(top, capture_output=True, text=True, timeout=100, check=True).stdout
    assert "fake-thermal 95 °C  memory 50 % free  power mode 7W" in drawn
    assert "ladder step 2 of 2 (warm, hot)" in drawn
    assert "step entered hot: temperature 95.0 °C, at least 90.0 °C" in drawn

    machine.set()
    until(lambda: level(server) == 0)
    until(lambda: sum(event["what"] == "replaced" for event in server.status()["degrade"]["events"]) == 2)
    until(lambda: server.status()["stages"]["llm"]["state"] == "ready")
    assert answer(server)[0] == tokens
    server.stop()
    lines = [json.loads(line) for line in (tmp_path / "turns.log").read_text().splitlines()]
    steps = [(line["event"], line["detail"]["step"]) for line in lines if line["event"].startswith("step_")]
    assert steps == [("step_entered", "warm"), ("step_entered", "hot"), ("step_left", "hot"), ("step_left", "warm")]
    swaps = [line["detail"] for line in lines if line["event"] == "stage_replaced"]
    assert [swap["model"] for swap in swaps] == ["other", "llm"]
    assert all(line["stage"] == "llm" for line in lines if line["event"] == "stage_replaced")


def test_voice__short_memory_counts_as_heat_does(server: Any, machine: FakeMachine, until: Callable[..., None]) -> None:
    """Any condition of a step is enough to enter it; all of them must be relieved to leave it."""
    machine.set(free=0.05)
    until(lambda: level(server) == 2)
    machine.set(celsius=88, free=0.5)
    time.sleep(3)
    assert level(server) == 2
    machine.set(celsius=80, free=0.5)
    until(lambda: level(server) == 1)


def test_conversation__its_model_is_swapped_between_two_turns(
    voice_package: Path, demo_key: Path, tmp_path: Path, machine: FakeMachine
) -> None:
    """A session that stays open, as in a car, does not keep the hot model; it goes on with what was said before."""
    package = variant(
        voice_package, tmp_path / "ladder.dpfbin", "2", demo_key, ladder=VOICE_LADDER, twins={"other": "llm"}
    )

    async def asked(session: Any, events: Any) -> str:
        await session.say("What is a volcano?")
        await session.respond()
        words = ""
        async for event in events:
            assert not isinstance(event, Failed), event
            words += event.text if isinstance(event, TextDelta) else ""
            if isinstance(event, TurnDone):
                return words
        raise AssertionError("the session ended")

    async def play() -> None:
        async with await AsyncRuntime.open(package, board="host") as runtime:
            session = await runtime.converse(spoken=False)
            events = session.events()
            assert await asked(session, events)
            llm = runtime.status()["stages"]["llm"]["pid"]
            machine.set(celsius=95)

            def swapped() -> bool:
                row = runtime.status(memory=False)["stages"]["llm"]
                return bool(row["state"] == "ready" and row["pid"] != llm)

            await soon(swapped, "the swap")
            assert await asked(session, events)
            assert len(session.history) == 4
            await runtime.end(session)

    asyncio.run(play())
